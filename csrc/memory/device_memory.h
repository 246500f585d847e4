// Reductions on a device, among ranks of a node that reach each other's memory. A call queues work on an executor and
// waits for it, so callers need not know about streams.
//
// Each rank gives an equal part, its *arena*, to the shared memory. The shared memory has its own addresses from
// `shared()` on, the same on all ranks, which only this class understands, because arenas are mapped at different
// places on each rank. All other addresses are the device's. Any thread may call; calls run one at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "memory/executor.h"
#include "memory/memory.h"

namespace pyc {

class DeviceMemory final : public ReductionMemory {
 public:
  struct Shape {
    Elements elements;
    ReduceOp op;
    std::size_t buffer_bytes;  ///< the longest buffer of a call
    std::size_t arena_bytes;   ///< of each rank; no call crosses from one arena into another
    std::size_t ranks;
  };

  /// Of the rank at `own`. Allocates everything except the buffers of `allocate`.
  DeviceMemory(Executor& executor, const Shape& shape, std::size_t own);

  /// The start of the shared memory. No host or device uses such an address.
  static std::byte* shared();
  /// Translates a shared address to this rank's device. Other addresses stay the same.
  std::byte* at(const std::byte* address) const;

  /// The memory that other ranks map, for `attach`.
  std::byte* arena() { return arena_.get(); }
  void attach(std::size_t rank, const SharedHandle& handle) { arenas_[rank] = executor_.map(handle); }
  /// Ends all mappings of other ranks' arenas. The shared memory must no longer be used.
  void detach();
  /// Frees this rank's arena. No rank may have it mapped.
  void free() {
    const std::lock_guard lock(mutex_);  // a call may be using it
    arena_.reset();
  }
  /// Leaks this rank's arena.
  void abandon() { static_cast<void>(arena_.release()); }

  BufferPtr allocate(std::size_t bytes) override { return {executor_.allocate(bytes).release(), {this}}; }
  void release(std::byte* data) noexcept override;

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void load(Elements elements, std::byte* into, const std::byte* from, std::size_t count) override;
  void reduce(Elements elements, ReduceOp op, std::byte* into, const std::byte* from, std::size_t count) override;
  void add(Elements elements, std::byte* into, const std::byte* from, std::size_t count, std::size_t divisor) override;
  void store(Elements elements, std::byte* into, const std::byte* from, std::size_t count,
             std::size_t divisor) override;
  void fill_identity(Elements elements, ReduceOp op, std::byte* into, std::size_t count) override;

 private:
  template <class Work>
  void run(Work work);
  void make_identity(const Shape& shape);

  Executor& executor_;
  const std::size_t arena_bytes_;
  const std::size_t own_;
  ExecutorMemory arena_;
  std::vector<ExecutorMemory> arenas_;  // by rank; this rank's is `arena_`
  ExecutorMemory quotient_;             // for sums of averages
  std::size_t identity_bytes_;
  ExecutorMemory identity_;  // filled with the identity; part of a buffer
  std::mutex mutex_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> done_;
};

}  // namespace pyc
