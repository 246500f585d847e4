#include "memory/device_memory.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <thread>

#include "core/error.h"

namespace pyc {
namespace {

/// Not an address of a process or a device, which have at most 57 bits.
constexpr std::uintptr_t kShared = std::uintptr_t{1} << 62U;
constexpr std::size_t kIdentityBytes = std::size_t{1} << 20U;

Elements partial(Elements elements) { return {elements.accumulator, elements.accumulator}; }

}  // namespace

DeviceMemory::DeviceMemory(Executor& executor, const Shape& shape, std::size_t own)
    : executor_(executor),
      arena_bytes_(shape.arena_bytes),
      own_(own),
      arena_(executor.allocate_shared(shape.arena_bytes)),
      arenas_(shape.ranks),
      quotient_(shape.op == ReduceOp::kAvg ? executor.allocate(shape.buffer_bytes) : ExecutorMemory{}),
      identity_bytes_(std::min(shape.buffer_bytes, kIdentityBytes)),
      identity_(executor.allocate(identity_bytes_)),
      stream_(executor.new_stream()),
      done_(executor.new_event()) {
  make_identity(shape);
}

// NOLINTNEXTLINE(performance-no-int-to-ptr): a number that stands for a place
std::byte* DeviceMemory::shared() { return reinterpret_cast<std::byte*>(kShared); }

void DeviceMemory::make_identity(const Shape& shape) {
  const ExecutorMemory staging = executor_.allocate_staging(identity_bytes_);
  const std::size_t count = identity_bytes_ / size_of(shape.elements.accumulator);
  host_memory().fill_identity(shape.elements, shape.op, staging.get(), count);
  run([&](Stream& s) { s.copy(identity_.get(), staging.get(), identity_bytes_); });
}

void DeviceMemory::detach() {
  const std::lock_guard lock(mutex_);
  finish_at_end(*stream_, *done_);
  for (ExecutorMemory& arena : arenas_) arena.reset();
}

std::byte* DeviceMemory::at(const std::byte* address) const {
  const auto number = reinterpret_cast<std::uintptr_t>(address);
  if (number < kShared) return const_cast<std::byte*>(address);
  const std::size_t offset = number - kShared;
  const std::size_t rank = offset / arena_bytes_;
  std::byte* const arena = rank == own_ ? arena_.get() : arenas_[rank].get();
  if (arena == nullptr) throw ClosedError("the collective has ended: what ranks had on their devices is freed");
  return arena + offset % arena_bytes_;
}

/// Queues the library's own work and waits for it. Such work always ends.
template <class Work>
void DeviceMemory::run(Work work) {
  const std::lock_guard lock(mutex_);
  work(*stream_);
  finish(*stream_, *done_);
}

void DeviceMemory::release(std::byte* data) noexcept { executor_.owned(data).reset(); }

void DeviceMemory::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  run([&](Stream& s) { s.copy(at(to), at(from), bytes); });
}

void DeviceMemory::load(Elements elements, std::byte* into, const std::byte* from, std::size_t count) {
  run([&](Stream& s) { s.load(elements, at(into), at(from), count); });
}

void DeviceMemory::reduce(Elements elements, ReduceOp op, std::byte* into, const std::byte* from, std::size_t count) {
  run([&](Stream& s) {
    std::byte* const total = at(into);
    const std::array<const std::byte*, 2> terms{total, at(from)};
    s.fold(partial(elements), op, {&total, 1}, terms, count, 1);
  });
}

void DeviceMemory::add(Elements elements, std::byte* into, const std::byte* from, std::size_t count,
                       std::size_t divisor) {
  run([&](Stream& s) {
    std::byte* const total = at(into);
    std::array<const std::byte*, 2> terms{total, at(from)};
    if (divisor != 1) {
      std::byte* const quotient = quotient_.get();
      s.fold(partial(elements), ReduceOp::kAvg, {&quotient, 1}, {&terms[1], 1}, count, divisor);
      terms[1] = quotient;
    }
    s.fold(partial(elements), ReduceOp::kSum, {&total, 1}, terms, count, 1);
  });
}

void DeviceMemory::store(Elements elements, std::byte* into, const std::byte* from, std::size_t count,
                         std::size_t divisor) {
  run([&](Stream& s) { s.store(elements, at(into), at(from), count, divisor); });
}

void DeviceMemory::fill_identity(Elements elements, ReduceOp, std::byte* into, std::size_t count) {
  const std::size_t bytes = count * size_of(elements.accumulator);
  run([&](Stream& s) {
    std::byte* const begin = at(into);
    for (std::size_t first = 0; first < bytes; first += identity_bytes_) {
      s.copy(begin + first, identity_.get(), std::min(identity_bytes_, bytes - first));
    }
  });
}

}  // namespace pyc
