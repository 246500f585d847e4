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

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "memory/memory.h"
#include "services/common/weighted_sum.h"
#include "services/parameter_server/layout.h"
#include "services/parameter_server/ledger.h"
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
    std::array<Clock, 2> gathered;        // newest push in each accumulator, 0 if it is empty
    std::atomic<Clock> used;              // pushes that the weights include or never will
  };
  enum class Role : std::uint32_t { kSlot, kFirst, kSecond };
  /// An update by gradients of several workers, which survivors complete if its writer dies.
  struct Journal {
    std::atomic<std::uint64_t> number;  // of the ticket; the members below are valid for this one
    std::atomic<Rank> completer;        // the survivor that completes it
    Ticket ticket;
    Version update;
    std::size_t writer;
    std::size_t terms;
  };
  struct JournalTerm {
    Part part;
    std::size_t offset;  // of the gradient, from the first buffer
  };
  /// The former values of the block that a writer changes.
  struct SavedBlock {
    std::atomic<std::uint64_t> number;  // of the ticket
    std::atomic<std::uint64_t> block;   // + 1, or 0
  };

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
  bool is_claimed(Worker worker, Clock clock) const {
    return slots_[worker].offer.load() == offer(clock, Offer::kClaimed);
  }
  const Work& work_of(Worker worker) const { return slots_[worker].work; }
  /// Returns false if the offer has been claimed.
  bool take_offer_back(Worker worker, Clock clock) const {
    Clock offered = offer(clock, Offer::kMade);
    return slots_[worker].offer.compare_exchange_strong(offered, 0);
  }

  void exchange(Worker worker, Role a, Role b) const;
  void turn() const;

  // ---- the pushes in the weights

  /// Notes the gradient that a step takes, and in its parts the pushes that its update uses. Called for the steps in
  /// their order.
  void note(Step& step) const;
  /// The update is done. Before the last block is passed, so that later work is noted later.
  void note_used(const Step& step) const {
    for (const Part& part : step.parts) note_used(part.worker, part.newest);
  }
  void note_used(Worker worker, Clock clock) const;

  /// Sets the initial weights, given in the element type.
  void start(const std::byte* weights);
  /// Takes over the weights and the states of the update rule, which begin `distance` elements apart, of the
  /// accumulator type.
  void resume(const Resumed& resumed, const std::byte* arrays, std::size_t distance);
  /// The reverse: copies the weights and states, one behind the other.
  void copy_arrays(std::byte* out) const;
  std::size_t arrays() const { return 1 + states_.size(); }

  /// Copies a gradient, from `block` on, into the worker's slot, which nothing else uses until its next push. Direct
  /// mode.
  std::byte* keep(Worker worker, std::size_t block, const std::byte* gradient) const;

  // ---- the journal

  // One writer, the server, or in direct mode the workers. Only recoverable servers have journals.

  /// Writes an update by `terms`, in the order of `parts`, before it begins. `own`: the worker whose gradient is not in
  /// shared memory.
  void write_journal(std::size_t writer, const Ticket& ticket, Version update, const std::vector<Part>& parts,
                     const std::vector<Term>& terms, std::optional<Worker> own) const;
  /// Saves a block before the update changes it.
  void save(std::uint64_t ticket, std::size_t block) const;
  bool has_journal(std::uint64_t ticket) const {
    return !journals_.empty() && journal(ticket).head->number.load(std::memory_order_acquire) == ticket;
  }
  /// Completes an update as far as earlier work permits, unless another survivor does. Returns whether anything
  /// changed. The ranks `dead` may have begun to complete it.
  bool complete_update(std::uint64_t ticket, Rank rank, const std::vector<Rank>& dead);
  /// Discards a dead worker's gathered gradients.
  void clear_accumulators(Worker worker, std::size_t first_block) const;

  // ---- the work on one block; pointers refer to the beginning of the shard

  /// Writes values of the element type to an accumulator, or adds them.
  void gather(std::size_t block, std::byte* accumulator, const std::byte* values, bool add);
  /// Adds the slot to an accumulator.
  void gather_slot(std::size_t block, std::byte* accumulator, Worker worker);
  /// Makes elements of the slot have no effect on the weights.
  void clear_slot(Worker worker, std::size_t first, std::size_t end);
  /// Sums one or more terms of the accumulator type.
  void sum(std::size_t block, const std::vector<Term>& terms, std::byte* into);
  /// Update `number`, by the sum of one or more terms of the accumulator type. `out`, if not null, receives the new
  /// weights in the element type.
  void update(std::size_t block, const std::vector<Term>& terms, Version number, std::byte* out = nullptr);
  /// `update`, or elastic averaging with the only term; nothing without terms.
  void apply(std::size_t block, const std::vector<Term>& terms, Version number);
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
  struct JournalMemory {
    Journal* head;
    JournalTerm* terms;
  };
  struct SavedMemory {
    SavedBlock* head;
    std::byte* values;  // of the weights, the states, and in elastic averaging the slot
  };
  const JournalMemory& journal(std::uint64_t ticket) const { return journals_[ticket % journals_.size()]; }
  void restore(const JournalMemory& journal, std::size_t block) const;
  std::vector<Term> terms_of(const JournalMemory& journal) const;

  Slot* slots_;
  std::vector<JournalMemory> journals_;
  std::vector<SavedMemory> saved_;  // by writer
  std::byte* weights_;
  std::vector<std::byte*> states_;
  std::byte* buffers_;
  Pipeline pipeline_;
};

}  // namespace pyc::server
