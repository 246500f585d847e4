// One server's part of the weights, in memory that its node shares: the weights, what the update rule keeps beside
// them, and for each worker two buffers, which are its slot and its accumulator.
//
// A worker's gradient comes into its slot: the worker copies it, or a message fills it. If the accumulator is empty,
// the two are exchanged, so that nothing is copied; else the gradient is added. The slot is the worker's until it says
// that it is full, and the server's until it says that it has taken the gradient.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/memory.h"
#include "services/common/weighted_sum.h"
#include "services/parameter_server/layout.h"
#include "services/parameter_server/pipeline.h"
#include "services/parameter_server/update_rule.h"

namespace pyc::server {

class Shard {
 public:
  static constexpr std::size_t kBlockBytes = std::size_t{64} << 10U;

  struct Slot {
    alignas(64) std::atomic<Clock> full;  // pushes whose gradients have come
    std::atomic<Clock> taken;             // ... and are not needed there any more
    std::atomic<std::uint32_t> which;     // of the two buffers
  };

  static std::size_t bytes(const Layout& layout, std::size_t shard);
  /// Of so many bytes, zeroed, aligned to a page. `first`: nobody has made it before.
  Shard(Memory& memory, const Layout& layout, std::size_t shard, std::byte* shared, bool first);

  std::size_t count() const { return count_; }
  Pipeline& pipeline() { return pipeline_; }
  Slot& slot(Worker worker) const { return slots_[worker]; }
  /// Where the gradient of the next push goes.
  std::byte* incoming(Worker worker) const { return buffer(worker, slot(worker).which.load() % 2); }
  std::byte* accumulator(Worker worker) const { return buffer(worker, (slot(worker).which.load() + 1) % 2); }
  void exchange(Worker worker) const { slot(worker).which.fetch_add(1); }

  /// Before anything else: the weights, of the element type.
  void start(const std::byte* weights);

  // ---- the work on one block; ranges given are of the whole shard

  /// Into the accumulator of a worker, or onto what it has: values of the element type.
  void gather(std::size_t block, Worker worker, const std::byte* values, bool add);
  /// ... the slot's, of the accumulator type.
  void gather_slot(std::size_t block, Worker worker);
  /// Update `number` by the sum of terms of the accumulator type, of which there is at least one.
  void update(std::size_t block, const std::vector<Term>& terms, Version number);
  /// Elastic averaging with weights of the accumulator type.
  void average(std::size_t block, std::byte* weights);
  /// ... with values of the element type; what becomes of them goes to `result`.
  void average(std::size_t block, const std::byte* values, std::byte* result);
  /// The weights, as elements.
  void read(std::size_t block, std::byte* out) const { narrow(block, weights_, out); }
  /// The values of a buffer, as elements.
  void narrow(std::size_t block, const std::byte* from, std::byte* out) const;

  /// The weights themselves, of the accumulator type.
  std::byte* weights() const { return weights_; }
  std::size_t first(std::size_t block) const { return block * block_count_; }
  std::size_t length(std::size_t block) const { return std::min(block_count_, count_ - first(block)); }

 private:
  std::byte* buffer(Worker worker, std::size_t which) const { return buffers_ + (2 * worker + which) * stride_; }

  Memory& memory_;
  const Elements elements_;
  const std::size_t wide_;  // bytes of an element
  const std::size_t count_;
  const std::size_t block_count_;
  const std::size_t stride_;
  UpdateRule rule_;
  WeightedSum sum_;
  BufferPtr scratch_;  // one block
  Slot* slots_;
  std::byte* weights_;
  std::vector<std::byte*> states_;
  std::byte* buffers_;
  Pipeline pipeline_;
};

}  // namespace pyc::server
