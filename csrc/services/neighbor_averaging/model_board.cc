#include "services/neighbor_averaging/model_board.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <new>
#include <utility>

#include "memory/executor.h"

namespace pyc {
namespace {

constexpr Seconds kPatience = 0.05;     // of calls that need the lock
constexpr Seconds kImpatience = 0.002;  // of averages, which can do something else

using Held = std::lock_guard<TimedMutex>;  // adopts a lock

}  // namespace

std::size_t ModelBoard::bytes(const ModelShape& shape) {
  return in_pages(sizeof(Head) + shape.segments() * sizeof(Segment));
}

ModelBoard::ModelBoard(Models& models, const ModelShape& shape, std::vector<std::shared_ptr<std::byte>> memories,
                       std::size_t local)
    : models_(models), shape_(shape), width_(size_of(shape.type)), memories_(std::move(memories)), local_(local) {
  ::new (memories_[local_].get()) Head{.process = ProcessId::own()};
  for (std::size_t i = 0; i < segments(); ++i) ::new (&segment(local_, i)) Segment;
}

ModelBoard::Segment& ModelBoard::segment(std::size_t local, std::size_t number) const {
  static_assert(sizeof(Head) % alignof(Segment) == 0);
  return reinterpret_cast<Segment*>(memories_[local].get() + sizeof(Head))[number];
}

ModelRange ModelBoard::range(std::size_t segment) const {
  const std::size_t first = segment * shape_.segment_count;
  return {first, std::min(shape_.segment_count, shape_.count - first)};
}

std::size_t ModelBoard::offset_in(std::size_t first_segment, std::size_t segment) const {
  return (segment - first_segment) * shape_.segment_bytes();
}

// ------------------------------------------------------------------------------------------------ failures

template <class Work>
bool ModelBoard::try_to(Work work) {
  if (has_failed(local_)) return false;
  try {
    work();
    return true;
  } catch (const DeviceError& error) {
    note_failure(error.what());
    return false;
  }
}

void ModelBoard::note_failure(const std::string& text) {
  Head& own = head(local_);
  if (own.is_failing.exchange(true)) return;
  text.copy(own.failure.data(), kLongestText - 1);
  own.has_failed.store(true, std::memory_order_release);
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
    const ModelRange all = range(number);
    const ModelRange part{first, std::min(all.first + all.count, end) - first};
    Segment& s = segment(local_, number);
    if (!s.mutex.try_lock()) wait_for(s.mutex, while_waiting);
    const Held held(s.mutex, std::adopt_lock);
    action(part);
    first += part.count;
  }
}

void ModelBoard::read(Elements as, std::size_t first, std::size_t count, std::byte* out,
                      const WhileWaiting& while_waiting) {
  under_locks(first, count, while_waiting,
              [&](const ModelRange& part) { models_.read(as, part, out + (part.first - first) * size_of(as.type)); });
}

void ModelBoard::apply(Elements as, std::size_t first, std::size_t count, const std::byte* delta, double factor,
                       const WhileWaiting& while_waiting) {
  under_locks(first, count, while_waiting, [&](const ModelRange& part) {
    models_.apply(as, part, delta + (part.first - first) * size_of(as.type), factor);
  });
}

void ModelBoard::assign(Elements as, std::size_t count, const std::byte* values) {
  under_locks(
      0, count, [] {},
      [&](const ModelRange& part) { models_.assign(as, part, values + part.first * size_of(as.type)); });
}

void ModelBoard::read_kept(std::size_t count, std::byte* out, const WhileWaiting& while_waiting) {
  under_locks(0, count, while_waiting,
              [&](const ModelRange& part) { models_.read_kept(part, out + part.first * width_); });
}

void ModelBoard::replace(std::size_t count, const std::byte* before, const std::byte* values,
                         const WhileWaiting& while_waiting) {
  under_locks(0, count, while_waiting, [&](const ModelRange& part) {
    models_.replace(part, before + part.first * width_, values + part.first * width_);
  });
}

void ModelBoard::exchange(std::size_t first, std::size_t count, std::byte* numbers, const WhileWaiting& while_waiting) {
  under_locks(first, count, while_waiting,
              [&](const ModelRange& part) { models_.exchange(part, numbers + (part.first - first) * width_); });
}

// ------------------------------------------------------------------------------------------------ averages

ModelBoard::Outcome ModelBoard::average(std::size_t other, std::size_t number) {
  Segment& lower = segment(std::min(local_, other), number);
  Segment& higher = segment(std::max(local_, other), number);
  if (!lower.mutex.try_lock_for(kImpatience)) return Outcome::kLocked;
  const Held first(lower.mutex, std::adopt_lock);
  if (!higher.mutex.try_lock_for(kImpatience)) return Outcome::kLocked;
  const Held second(higher.mutex, std::adopt_lock);
  if (lower.lent || higher.lent) return Outcome::kLent;
  if (has_failed(other)) return Outcome::kFailed;  // the model is lost
  return try_to([&] { models_.average(other, range(number)); }) ? Outcome::kAveraged : Outcome::kFailed;
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
  bool lent = true;
  for (std::size_t i = first_segment; i < end_segment; ++i) {
    lent = lent && try_to([&] { models_.lend(range(i), values + offset_in(first_segment, i)); });
    segment(local_, i).lent = lent;
    segment(local_, i).mutex.unlock();
  }
  return lent;
}

bool ModelBoard::take_back(std::size_t first_segment, std::size_t end_segment, const std::byte* step) {
  for (std::size_t i = first_segment; i < end_segment; ++i) {
    Segment& s = segment(local_, i);
    if (!s.lent) continue;  // already taken back: only this rank lends
    if (!s.mutex.try_lock_for(kImpatience)) return false;
    const Held held(s.mutex, std::adopt_lock);
    s.lent = false;
    if (step == nullptr) continue;
    try_to([&] { models_.subtract(range(i), step + offset_in(first_segment, i)); });
  }
  return true;
}

bool ModelBoard::meet(std::size_t first_segment, std::size_t end_segment, std::byte* values) {
  if (!lock_all(first_segment, end_segment)) return false;
  bool met = true;
  for (std::size_t i = first_segment; i < end_segment; ++i) {
    met = met && try_to([&] { models_.meet(range(i), values + offset_in(first_segment, i)); });
    segment(local_, i).mutex.unlock();
  }
  return met;
}

}  // namespace pyc
