// Reductions on a device, among ranks of a node that reach each other's memory: what an executor queues, done when a
// call returns. So who uses it need not know that there are streams.
//
// The ranks share memory that each gives an equal part of, its *arena*. It has addresses of its own, the same on all
// ranks, from `shared()` on, which this class alone understands: where an arena is mapped differs from rank to rank.
// All other addresses are the device's. Calls may come from any thread; they are done one at a time.
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
    std::size_t buffer_bytes;  ///< the longest that a call works on
    std::size_t arena_bytes;   ///< of each rank; no call crosses from one arena into another
    std::size_t ranks;
  };

  /// Of the rank at `own`. Allocates all that it will ever need but what `allocate` is asked for.
  DeviceMemory(Executor& executor, const Shape& shape, std::size_t own);

  /// Where the shared memory begins. No such address is used by a host or a device.
  static std::byte* shared();
  /// Where it is on this rank's device; all other addresses are as they are.
  std::byte* at(const std::byte* address) const;

  /// What the others map, for `attach`.
  std::byte* arena() { return arena_.get(); }
  void attach(std::size_t rank, const SharedHandle& handle) { arenas_[rank] = executor_.map(handle); }
  /// Ends all mappings of the others' arenas. The shared memory is used no more.
  void detach();
  /// Frees the own arena: nobody has it mapped any more.
  void free() {
    const std::lock_guard lock(mutex_);  // a call may be at work in it
    arena_.reset();
  }
  /// Leaves the own arena as it is for good.
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
  std::vector<ExecutorMemory> arenas_;  // by rank; the own is `arena_`
  ExecutorMemory quotient_;             // if averages are added up
  std::size_t identity_bytes_;
  ExecutorMemory identity_;  // a part of a buffer that is full of it
  std::mutex mutex_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> done_;
};

}  // namespace pyc
