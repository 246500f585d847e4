// One server's part of the weights, in memory that its node shares: the weights, the state of the update rule, and a
// slot and two accumulators for each worker.
//
// A worker's gradient arrives in its slot, copied by the worker or received in a message. If its accumulator is empty,
// slot and accumulator are exchanged, which copies nothing; otherwise the gradient is added. The slot is the worker's
// until it advances `full`, and then the server's until it advances `taken`.
//
// A worker that waits for the new weights may offer to update them itself, in one pass from its gradient. The server
// claims the offer, takes a ticket in the worker's name, and grants the work. Until the claim, the worker may take the
// offer back, and the server then finds the gradient in the slot. A ticket is thus taken only for work that will be
// done.
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

  /// Work that a worker does itself.
  struct Work {
    Ticket ticket;
    Version update;  // 0: none, the gradient is discarded
    double weight;   // of the gradient
  };
  struct Slot {
    alignas(64) std::atomic<Clock> full;  // pushes whose gradients have arrived
    std::atomic<Clock> taken;             // ... and are no longer needed in the slot
    std::atomic<Version> awaited;         // version of the weights that the worker sleeps for; 0: none
    std::atomic<Clock> offer;             // push and state of the worker's offer, see `offer()`
    Work work;                            // valid once the offer is granted
    std::atomic<std::uint32_t> roles;     // the buffer of each Role, two bits each
  };
  enum class Role : std::uint32_t { kSlot, kFirst, kSecond };

  static std::size_t bytes(const Layout& layout, std::size_t shard);
  /// `shared`: bytes(layout, shard), zeroed, page-aligned. `first`: initializes it.
  Shard(Memory& memory, const Layout& layout, std::size_t shard, std::byte* shared, bool first);

  std::size_t count() const { return count_; }
  Pipeline& pipeline() { return pipeline_; }
  Slot& slot(Worker worker) const { return slots_[worker]; }
  std::byte* incoming(Worker worker) const { return buffer(worker, Role::kSlot); }
  std::byte* accumulator(Worker worker, bool second = false) const {
    return buffer(worker, second ? Role::kSecond : Role::kFirst);
  }

  // ---- offers of work

  void offer_work(Worker worker, Clock clock) const { slots_[worker].offer.store(offer(clock, Offer::kMade)); }
  /// Returns false if there is no offer, or the worker has taken it back. `grant_work` requires a claim.
  bool claim_work(Worker worker, Clock clock) const;
  void grant_work(Worker worker, Clock clock, const Work& work) const;
  bool is_granted(Worker worker, Clock clock) const {
    return slots_[worker].offer.load() == offer(clock, Offer::kGranted);
  }
  const Work& work_of(Worker worker) const { return slots_[worker].work; }
  /// Returns false if the offer has been claimed.
  bool take_offer_back(Worker worker, Clock clock) const {
    Clock offered = offer(clock, Offer::kMade);
    return slots_[worker].offer.compare_exchange_strong(offered, 0);
  }

  void exchange(Worker worker, Role a, Role b) const;
  void turn() const;

  /// Sets the initial weights, given in the element type.
  void start(const std::byte* weights);

  /// Copies a gradient, from `block` on, into the worker's slot, which nothing else uses until its next push. Direct
  /// mode.
  std::byte* keep(Worker worker, std::size_t block, const std::byte* gradient) const;

  // ---- the work on one block; pointers refer to the beginning of the shard

  /// Writes values of the element type to an accumulator, or adds them.
  void gather(std::size_t block, std::byte* accumulator, const std::byte* values, bool add);
  /// Adds the slot to an accumulator.
  void gather_slot(std::size_t block, std::byte* accumulator, Worker worker);
  /// Sums one or more terms of the accumulator type.
  void sum(std::size_t block, const std::vector<Term>& terms, std::byte* into);
  /// Update `number`, by the sum of one or more terms of the accumulator type. `out`, if not null, receives the new
  /// weights in the element type.
  void update(std::size_t block, const std::vector<Term>& terms, Version number, std::byte* out = nullptr);
  /// Elastic averaging with weights of the accumulator type, in place.
  void average(std::size_t block, std::byte* weights);
  /// ... with weights of the element type; the averaged ones go to `result`.
  void average(std::size_t block, const std::byte* values, std::byte* result);
  void read(std::size_t block, std::byte* out) const { narrow(block, weights_, out); }
  /// Converts a buffer to the element type.
  void narrow(std::size_t block, const std::byte* from, std::byte* out) const {
    give(from, first(block), length(block), out);
  }

  /// In the accumulator type.
  std::byte* weights() const { return weights_; }
  std::size_t first(std::size_t block) const { return block * block_count_; }
  std::size_t length(std::size_t block) const { return std::min(block_count_, count_ - first(block)); }

 private:
  static constexpr std::uint32_t kRoles = 3;

  enum class Offer : Clock { kMade, kClaimed, kGranted };
  /// The value of Slot::offer; 0: none.
  static Clock offer(Clock clock, Offer state) { return 3 * clock + static_cast<Clock>(state); }

  void give(const std::byte* from, std::size_t at, std::size_t count, std::byte* out) const;

  std::byte* buffer(Worker worker, Role role) const {
    return buffers_ + (kRoles * worker + place(slots_[worker].roles.load(), role)) * stride_;
  }
  static std::uint32_t place(std::uint32_t roles, Role role) {
    return roles >> (2 * static_cast<std::uint32_t>(role)) & 3U;
  }

  Memory& memory_;
  const Elements elements_;
  const std::size_t wide_;  // bytes of an accumulator element
  const std::size_t count_;
  const std::size_t block_count_;
  const std::size_t stride_;
  const std::size_t workers_;
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
