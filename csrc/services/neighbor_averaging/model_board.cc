#include "services/neighbor_averaging/model_board.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

namespace pyc {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kBlockBytes = std::size_t{8} << 10U;  // stays in the first-level cache
constexpr Seconds kPatience = 0.05;                         // of who needs the lock
constexpr Seconds kImpatience = 0.002;                      // of who can average something else

std::size_t round_up(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::size_t segments_of(const ModelBoard::Shape& shape) {
  return (shape.count + shape.segment_count - 1) / shape.segment_count;
}

}  // namespace

std::size_t ModelBoard::bytes_before_values(const Shape& shape) {
  return round_up(sizeof(Head) + segments_of(shape) * sizeof(Segment));
}

std::size_t ModelBoard::bytes_of_values(const Shape& shape) { return round_up(shape.count * size_of(shape.type)); }

std::size_t ModelBoard::bytes(const Shape& shape) {
  return bytes_before_values(shape) + bytes_of_values(shape) * (shape.acceleration ? 2 : 1);
}

ModelBoard::ModelBoard(Memory& memory, const Shape& shape, std::vector<std::shared_ptr<std::byte>> memories,
                       std::size_t local)
    : memory_(memory),
      shape_(shape),
      acceleration_(shape.acceleration.value_or(Acceleration{})),
      held_{shape.type, shape.type},
      width_(size_of(shape.type)),
      memories_(std::move(memories)),
      local_(local),
      scratch_(memory.allocate(kBlockBytes)) {
  ::new (memories_[local_].get()) Head{.averages = 0, .process = ProcessId::own(), .has_left = false};
  for (std::size_t i = 0; i < segments(); ++i) ::new (&segment(local_, i)) Segment;
}

ModelBoard::Segment& ModelBoard::segment(std::size_t local, std::size_t number) const {
  static_assert(sizeof(Head) % alignof(Segment) == 0);
  return reinterpret_cast<Segment*>(memories_[local].get() + sizeof(Head))[number];
}

ModelBoard::Range ModelBoard::range(std::size_t segment) const {
  const std::size_t first = segment * shape_.segment_count;
  return {first, std::min(shape_.segment_count, shape_.count - first)};
}

std::byte* ModelBoard::model(std::size_t local, std::size_t element) const {
  return memories_[local].get() + bytes_before_values(shape_) + element * width_;
}

std::byte* ModelBoard::second_model(std::size_t local, std::size_t element) const {
  return model(local, element) + bytes_of_values(shape_);
}

// ------------------------------------------------------------------------------------------------ this rank's model

void ModelBoard::wait_for(TimedMutex& mutex, const WhileWaiting& while_waiting) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  while (!mutex.try_lock_for(kPatience)) while_waiting();
  const auto waited = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin);
  waited_ns_.fetch_add(static_cast<std::uint64_t>(waited.count()), std::memory_order_relaxed);
}

template <class Action>
void ModelBoard::under_locks(std::size_t first, std::size_t count, const WhileWaiting& while_waiting, Action action) {
  const std::size_t end = first + count;
  while (first < end) {
    const std::size_t number = first / shape_.segment_count;
    const Range all = range(number);
    const Range part{first, std::min(all.first + all.count, end) - first};
    Segment& s = segment(local_, number);
    if (!s.mutex.try_lock()) wait_for(s.mutex, while_waiting);
    action(part);
    s.mutex.unlock();
    first += part.count;
  }
}

void ModelBoard::read(Elements as, std::size_t first, std::size_t count, std::byte* out,
                      const WhileWaiting& while_waiting) {
  under_locks(first, count, while_waiting, [&](const Range& part) {
    std::byte* const to = out + (part.first - first) * size_of(as.type);
    if (as.widened()) return memory_.store(as, to, model(local_, part.first), part.count, 1);
    memory_.copy(to, model(local_, part.first), part.count * width_);
  });
}

void ModelBoard::read_kept(std::size_t first, std::size_t count, std::byte* out, const WhileWaiting& while_waiting) {
  under_locks(first, count, while_waiting,
              [&](const Range& part) { copy_kept(part.first, part.count, out + (part.first - first) * width_); });
}

/// Under the lock of their segment.
void ModelBoard::copy_kept(std::size_t first, std::size_t count, std::byte* out) const {
  memory_.copy(out, model(local_, first), count * width_);
  if (!shape_.acceleration) return;
  memory_.add_scaled(shape_.type, out, second_model(local_, first), count, 1);
  memory_.scale(shape_.type, out, count, 0.5);
}

void ModelBoard::apply(Elements as, std::size_t first, std::size_t count, const std::byte* delta, double factor,
                       const WhileWaiting& while_waiting) {
  alignas(64) std::array<std::byte, kBlockBytes> widened;
  under_locks(first, count, while_waiting, [&](const Range& part) {
    const std::byte* const step = delta + (part.first - first) * size_of(as.type);
    if (!as.widened()) return add_to_both(part.first, step, part.count, factor);
    const std::size_t longest = widened.size() / width_;
    for (std::size_t i = 0; i < part.count; i += longest) {
      const std::size_t block = std::min(longest, part.count - i);
      memory_.load(as, widened.data(), step + i * size_of(as.type), block);
      add_to_both(part.first + i, widened.data(), block, factor);
    }
  });
}

void ModelBoard::add_to_both(std::size_t element, const std::byte* delta, std::size_t count, double factor) {
  memory_.add_scaled(shape_.type, model(local_, element), delta, count, factor);
  if (shape_.acceleration) memory_.add_scaled(shape_.type, second_model(local_, element), delta, count, factor);
}

void ModelBoard::assign(std::size_t first, std::size_t count, const std::byte* values,
                        const WhileWaiting& while_waiting) {
  under_locks(first, count, while_waiting, [&](const Range& part) {
    const std::byte* const from = values + (part.first - first) * width_;
    memory_.copy(model(local_, part.first), from, part.count * width_);
    if (shape_.acceleration) memory_.copy(second_model(local_, part.first), from, part.count * width_);
  });
}

void ModelBoard::replace(std::size_t count, const std::byte* before, const std::byte* values,
                         const WhileWaiting& while_waiting) {
  alignas(64) std::array<std::byte, kBlockBytes> block;
  const auto replace_block = [&](std::size_t first, std::size_t elements) {
    const std::size_t bytes = elements * width_;
    const std::byte* const value = values + first * width_;
    std::byte* const now = block.data();
    copy_kept(first, elements, now);
    if (std::memcmp(now, before + first * width_, bytes) == 0) {
      memory_.copy(now, value, bytes);  // not by adding nothing, which is no number where values are infinite
    } else {
      memory_.add_scaled(shape_.type, now, before + first * width_, elements, -1);
      memory_.add_scaled(shape_.type, now, value, elements, 1);
    }
    memory_.copy(model(local_, first), now, bytes);
    if (shape_.acceleration) memory_.copy(second_model(local_, first), now, bytes);
  };
  under_locks(0, count, while_waiting, [&](const Range& part) {
    const std::size_t longest = block.size() / width_;
    for (std::size_t i = 0; i < part.count; i += longest) {
      replace_block(part.first + i, std::min(longest, part.count - i));
    }
  });
}

// ------------------------------------------------------------------------------------------------ averages

ModelBoard::Outcome ModelBoard::average(std::size_t other, std::size_t number) {
  Segment& lower = segment(std::min(local_, other), number);
  Segment& higher = segment(std::max(local_, other), number);
  if (!lower.mutex.try_lock_for(kImpatience)) return Outcome::kLocked;
  if (!higher.mutex.try_lock_for(kImpatience)) {
    lower.mutex.unlock();
    return Outcome::kLocked;
  }
  const bool lent = lower.lent || higher.lent;
  if (!lent) average_both(other, range(number));
  higher.mutex.unlock();
  lower.mutex.unlock();
  return lent ? Outcome::kLent : Outcome::kAveraged;
}

void ModelBoard::average_both(std::size_t other, const Range& all) {
  if (!shape_.acceleration) {
    memory_.average(shape_.type, model(local_, all.first), model(other, all.first), all.count);
    return;
  }
  mix(local_, all);
  mix(other, all);
  const double pull = 2 * acceleration_.alpha;
  const std::size_t block = kBlockBytes / width_;
  for (std::size_t first = all.first; first < all.first + all.count; first += block) {
    const std::size_t count = std::min(block, all.first + all.count - first);
    memory_.copy(scratch_.get(), model(other, first), count * width_);
    memory_.meet(shape_.type, model(local_, first), scratch_.get(), count);
    memory_.add_scaled(shape_.type, model(other, first), scratch_.get(), count, -1);
    memory_.add_scaled(shape_.type, second_model(local_, first), scratch_.get(), count, pull);
    memory_.add_scaled(shape_.type, second_model(other, first), scratch_.get(), count, -pull);
  }
}

void ModelBoard::mix(std::size_t local, const Range& all) {
  memory_.mix(shape_.type, model(local, all.first), second_model(local, all.first), all.count, acceleration_.kept);
}

bool ModelBoard::lock_all(std::size_t first_segment, std::size_t end_segment) {
  for (std::size_t i = first_segment; i < end_segment; ++i) {
    if (segment(local_, i).mutex.try_lock_for(kImpatience)) continue;
    unlock_all(first_segment, i);
    return false;
  }
  return true;
}

void ModelBoard::unlock_all(std::size_t first_segment, std::size_t end_segment) {
  for (std::size_t i = first_segment; i < end_segment; ++i) segment(local_, i).mutex.unlock();
}

bool ModelBoard::lend(std::size_t first_segment, std::size_t end_segment, std::byte* values) {
  if (!lock_all(first_segment, end_segment)) return false;
  for (std::size_t i = first_segment; i < end_segment; ++i) {
    const Range all = range(i);
    segment(local_, i).lent = true;
    if (shape_.acceleration) mix(local_, all);
    memory_.copy(values + (all.first - range(first_segment).first) * width_, model(local_, all.first),
                 all.count * width_);
    segment(local_, i).mutex.unlock();
  }
  return true;
}

bool ModelBoard::take_back(std::size_t first_segment, std::size_t end_segment, const std::byte* step) {
  for (std::size_t i = first_segment; i < end_segment; ++i) {
    const Range all = range(i);
    Segment& s = segment(local_, i);
    if (!s.lent) continue;  // taken back by an earlier call: only this rank lends
    if (!s.mutex.try_lock_for(kImpatience)) return false;
    s.lent = false;
    if (step != nullptr) {
      const std::byte* const part = step + (all.first - range(first_segment).first) * width_;
      memory_.add_scaled(shape_.type, model(local_, all.first), part, all.count, -1);
      if (shape_.acceleration) {
        memory_.add_scaled(shape_.type, second_model(local_, all.first), part, all.count, -2 * acceleration_.alpha);
      }
    }
    s.mutex.unlock();
  }
  return true;
}

bool ModelBoard::meet(std::size_t first_segment, std::size_t end_segment, std::byte* values) {
  if (!lock_all(first_segment, end_segment)) return false;
  for (std::size_t i = first_segment; i < end_segment; ++i) {
    const Range all = range(i);
    std::byte* const step = values + (all.first - range(first_segment).first) * width_;
    if (shape_.acceleration) mix(local_, all);
    memory_.meet(shape_.type, model(local_, all.first), step, all.count);
    if (shape_.acceleration) {
      memory_.add_scaled(shape_.type, second_model(local_, all.first), step, all.count, 2 * acceleration_.alpha);
    }
    segment(local_, i).mutex.unlock();
  }
  return true;
}

}  // namespace pyc
