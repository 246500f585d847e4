// One server's part of the weights, in memory that its node shares: the weights, what the update rule keeps beside
// them, and for each worker its slot and its accumulators.
//
// A worker's gradient comes into its slot: the worker copies it, or a message fills it. If the accumulator that it is
// for is empty, the two are exchanged, so that nothing is copied; else the gradient is added. The slot is the worker's
// until it says that it is full, and the server's until it says that it has taken the gradient.
//
// A worker that waits for the weights anyway may offer to do the update itself, straight from its gradient, in one
// pass. The server claims the offer, takes a place in the order of work in the worker's name, and grants it. Until it
// is claimed, the worker may take it back: then the server finds the gradient in the slot after all. A place is thus
// taken only for work that is done.
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

  /// What a worker is to do itself.
  struct Work {
    Ticket ticket;
    Version update;  // 0: nothing, its gradient is discarded
    double weight;   // of the gradient
  };
  struct Slot {
    alignas(64) std::atomic<Clock> full;  // pushes whose gradients have come
    std::atomic<Clock> taken;             // ... and are not needed there any more
    std::atomic<Version> awaited;         // of the weights, while the worker sleeps for it
    std::atomic<Clock> offer;             // whether the worker does the work of a push itself, see below
    Work work;                            // ... when it has been granted
    std::atomic<std::uint32_t> roles;     // which buffer is what, two bits for each Role
  };
  /// What the three buffers of a worker are.
  enum class Role : std::uint32_t { kSlot, kFirst, kSecond };

  static std::size_t bytes(const Layout& layout, std::size_t shard);
  /// Of so many bytes, zeroed, aligned to a page. `first`: nobody has made it before.
  Shard(Memory& memory, const Layout& layout, std::size_t shard, std::byte* shared, bool first);

  std::size_t count() const { return count_; }
  Pipeline& pipeline() { return pipeline_; }
  Slot& slot(Worker worker) const { return slots_[worker]; }
  /// Where the gradient of the next push goes.
  std::byte* incoming(Worker worker) const { return buffer(worker, Role::kSlot); }
  std::byte* accumulator(Worker worker, bool second = false) const {
    return buffer(worker, second ? Role::kSecond : Role::kFirst);
  }

  // ---- who does the work of a push

  void offer_work(Worker worker, Clock clock) const { slots_[worker].offer.store(offer(clock, Offer::kMade)); }
  /// False if there is no offer, or the worker has taken it back.
  bool claim_work(Worker worker, Clock clock) const;
  /// When it is claimed.
  void grant_work(Worker worker, Clock clock, const Work& work) const;
  bool is_granted(Worker worker, Clock clock) const {
    return slots_[worker].offer.load() == offer(clock, Offer::kGranted);
  }
  const Work& work_of(Worker worker) const { return slots_[worker].work; }
  /// False if it has been claimed.
  bool take_offer_back(Worker worker, Clock clock) const {
    Clock offered = offer(clock, Offer::kMade);
    return slots_[worker].offer.compare_exchange_strong(offered, 0);
  }

  void exchange(Worker worker, Role a, Role b) const;
  /// Every worker's second accumulator takes the place of the first.
  void turn() const;

  /// Before anything else: the weights, of the element type.
  void start(const std::byte* weights);

  /// Copies a gradient, from a block on, to where nobody else looks for it until the worker's next push.
  std::byte* keep(Worker worker, std::size_t block, const std::byte* gradient) const;

  // ---- the work on one block; ranges given are of the whole shard

  /// Into an accumulator, or onto what it has: values of the element type.
  void gather(std::size_t block, std::byte* accumulator, const std::byte* values, bool add);
  /// The slot's, onto what an accumulator has.
  void gather_slot(std::size_t block, std::byte* accumulator, Worker worker);
  /// The sum of terms of the accumulator type, of which there is at least one.
  void sum(std::size_t block, const std::vector<Term>& terms, std::byte* into);
  /// Update `number` by the sum of terms of the accumulator type, of which there is at least one. `out`, if not null,
  /// is given the new weights, as elements.
  void update(std::size_t block, const std::vector<Term>& terms, Version number, std::byte* out = nullptr);
  /// Elastic averaging with weights of the accumulator type.
  void average(std::size_t block, std::byte* weights);
  /// ... with values of the element type; what becomes of them goes to `result`.
  void average(std::size_t block, const std::byte* values, std::byte* result);
  /// The weights, as elements.
  void read(std::size_t block, std::byte* out) const { narrow(block, weights_, out); }
  /// The values of a buffer, as elements.
  void narrow(std::size_t block, const std::byte* from, std::byte* out) const {
    give(from, first(block), length(block), out);
  }

  /// The weights themselves, of the accumulator type.
  std::byte* weights() const { return weights_; }
  std::size_t first(std::size_t block) const { return block * block_count_; }
  std::size_t length(std::size_t block) const { return std::min(block_count_, count_ - first(block)); }

 private:
  static constexpr std::uint32_t kRoles = 3;

  enum class Offer : Clock { kMade, kClaimed, kGranted };
  /// What stands in a slot; 0: nothing.
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
  const std::size_t wide_;  // bytes of an element
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
