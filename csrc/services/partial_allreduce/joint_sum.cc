#include "services/partial_allreduce/joint_sum.h"

#include <sched.h>

#include <algorithm>

#include "core/relax.h"
#include "memory/copy.h"

namespace pyc {
namespace {

// Looks at pieces that other ranks are adding to, before they are left over: some microseconds, then some yields.
constexpr int kRelaxedLooks = 100;
constexpr int kLooks = 150;

}  // namespace

JointSum::JointSum(BoardMemory& memory, const BoardShape& shape, Rank own)
    : shape_(shape),
      own_(own),
      pieces_(shape.piece_bytes > 0 ? (shape.buffer_bytes() + shape.piece_bytes - 1) / shape.piece_bytes : 0),
      words_(memory.take_rows<Word>(pieces_, 1)),
      missing_(memory.take_rows<std::uint64_t>(on() ? shape.local_ranks() : 0, (pieces_ + 63) / 64)) {}

bool JointSum::add(const Joined& joined, ReductionMemory& memory, const std::byte* data) {
  std::uint64_t* const missing = missing_[row(own_)];
  std::fill_n(missing, (pieces_ + 63) / 64, ~std::uint64_t{0});
  const std::size_t first = row(own_) * pieces_ / shape_.local_ranks();
  std::size_t left = pieces_;
  for (int looks = 0;;) {
    const std::size_t before = left;
    for (std::size_t i = 0; i < pieces_; ++i) {
      const std::size_t piece = first + i < pieces_ ? first + i : first + i - pieces_;
      if (!is_missing(own_, piece) || !try_add(joined, memory, data, piece)) continue;
      missing[piece / 64] &= ~(std::uint64_t{1} << piece % 64);
      --left;
    }
    if (left == 0) return true;
    if (left < before) continue;
    if (++looks > kLooks) return false;
    if (looks <= kRelaxedLooks) {
      relax();
    } else {
      sched_yield();
    }
  }
}

bool JointSum::try_add(const Joined& joined, ReductionMemory& memory, const std::byte* data, std::size_t piece) {
  Word& word = *words_[piece];
  std::uint64_t seen = word.load(std::memory_order_relaxed);
  const std::uint64_t mine = busy(joined.generation);
  if (seen == mine || !word.compare_exchange_strong(seen, mine, std::memory_order_acquire, std::memory_order_relaxed)) {
    return false;
  }
  const std::size_t begin = piece * shape_.piece_bytes;
  const std::size_t width = size_of(shape_.elements.accumulator);
  const std::size_t count = (std::min(end_of_piece(begin), shape_.buffer_bytes()) - begin) / width;
  const std::byte* const from = data + begin / width * size_of(shape_.elements.type);
  if (joined.is_filled || seen == filled(joined.generation)) {
    reduce(memory, joined.sum + begin, from, count);
  } else {
    load(memory, shape_.elements, joined.sum + begin, from, count);
  }
  word.store(filled(joined.generation), std::memory_order_release);
  return true;
}

void JointSum::reduce(ReductionMemory& memory, std::byte* into, const std::byte* from, std::size_t count) const {
  const Elements elements = shape_.elements;
  if (!elements.widened()) return memory.reduce(elements, shape_.op, into, from, count);
  alignas(64) std::byte wide[kBlockBytes];
  const std::size_t width = size_of(elements.accumulator);
  for (std::size_t first = 0; first < count; first += sizeof wide / width) {
    const std::size_t length = std::min(sizeof wide / width, count - first);
    memory.load(elements, wide, from + first * size_of(elements.type), length);
    memory.reduce(elements, shape_.op, into + first * width, wide, length);
  }
}

void JointSum::copy_left_over(ReductionMemory& memory, std::byte* to, const std::byte* data) const {
  const std::size_t width = size_of(shape_.elements.accumulator);
  for (std::size_t piece = 0; piece < pieces_; ++piece) {
    if (!is_missing(own_, piece)) continue;
    const std::size_t begin = piece * shape_.piece_bytes;
    const std::size_t count = (std::min(end_of_piece(begin), shape_.buffer_bytes()) - begin) / width;
    load(memory, shape_.elements, to + begin, data + begin / width * size_of(shape_.elements.type), count);
  }
}

}  // namespace pyc
