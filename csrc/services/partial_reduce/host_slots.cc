#include "services/partial_reduce/host_slots.h"

#include <algorithm>

namespace pyc {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{8} << 10U;  // fits in the first-level cache

}  // namespace

std::size_t HostSlots::longest_piece(const GroupData& data) const {
  return slot_bytes_ / size_of(data.elements().accumulator);
}

void HostSlots::put(const GroupData& piece) {
  std::byte* const own = slots_[local_];
  memory_.load(piece.elements(), own, piece.values, piece.count);
  if (piece.weight) memory_.scale(piece.elements().accumulator, own, piece.count, *piece.weight);
}

void HostSlots::reduce(const GroupData& piece, const std::vector<std::size_t>& members, std::optional<double> factor,
                       std::size_t into, std::size_t first, std::size_t length) {
  const std::size_t block = kBlockBytes / size_of(piece.elements().accumulator);
  const std::size_t end = first + length;
  for (; first < end; first += block) add(piece, members, factor, into, first, std::min(block, end - first));
}

void HostSlots::add(const GroupData& piece, const std::vector<std::size_t>& members, std::optional<double> factor,
                    std::size_t into, std::size_t first, std::size_t length) const {
  const Elements elements = piece.elements();
  const std::size_t width = size_of(elements.accumulator);
  std::byte* const total = slots_[into] + first * width;
  if (members.front() != into) memory_.copy(total, slots_[members.front()] + first * width, length * width);
  for (const std::size_t member : members) {
    if (member == members.front()) continue;
    memory_.reduce(elements, piece.op, total, slots_[member] + first * width, length);
  }
  if (factor) {
    memory_.scale(elements.accumulator, total, length, *factor);
  } else if (piece.op == ReduceOp::kAvg) {  // here, once for all members
    memory_.store({elements.accumulator, elements.accumulator}, total, total, length, members.size());
  }
}

void HostSlots::take(const GroupData& piece, std::size_t from) {
  memory_.store(piece.elements(), piece.values, slots_[from], piece.count, 1);
}

}  // namespace pyc
