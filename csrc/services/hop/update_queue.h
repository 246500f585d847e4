// UpdateQ(i) of section 4.1: the updates from the in-neighbors of rank i, each tagged with its iteration and sender.
//
// Each sender has max_ig + 1 slots, used in rotation: the update of iteration k goes to slot k mod (max_ig + 1)
// (section 6.1). All (max_ig + 1) |N_in(i)| slots are allocated at creation. Their writer is the sender on the same
// node, or the receiver's engine for a sender on another node. It discards an update that is still in the slot: the
// sender's token proves that the receiver is past that iteration.
//
// If the slot is claimed (update_slot.h), the writer uses the next one. This happens only under bounded staleness,
// where only a sender's newest update counts and the receiver may be reading an earlier one.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "services/hop/options.h"
#include "services/hop/update_slot.h"

namespace pyc {

class UpdateQueue {
 public:
  /// For zeroed memory, aligned to a cache line.
  static std::size_t bytes(std::size_t senders, Iteration sub_queues, std::size_t update_bytes);
  UpdateQueue(std::byte* memory, std::size_t senders, Iteration sub_queues, std::size_t update_bytes);

  // ---- a sender, named by its index among the in-neighbors

  /// Empties and returns the slot for an update of iteration `iter`.
  std::size_t begin_enqueue(std::size_t sender, Iteration iter);
  std::byte* values(std::size_t sender, std::size_t slot) const { return values_ + (sender * slots_ + slot) * stride_; }
  /// Whether its slot is not being read and has no update of iteration `oldest` or later.
  bool has_room(std::size_t sender, Iteration iter, Iteration oldest) const;
  void end_enqueue(std::size_t sender, std::size_t slot, Iteration iter) { slot_at(sender, slot).fill(iter); }

  // ---- the receiver

  /// An update that the receiver reads. It stays in the queue until `dequeue`.
  struct Claim {
    std::size_t sender;
    std::size_t slot;
    Iteration iter;
  };
  bool has(std::size_t sender, Iteration iter) const { return slot_at(sender, slot_of(iter)).is_full_of(iter); }
  std::optional<Iteration> newest(std::size_t sender) const;
  std::optional<Claim> claim(std::size_t sender, Iteration iter);
  std::optional<Claim> claim_newest(std::size_t sender);
  void release(const Claim& claim) { slot_at(claim.sender, claim.slot).release(claim.iter); }
  void dequeue(const Claim& claim) { slot_at(claim.sender, claim.slot).dequeue(); }
  std::size_t discard_before(std::size_t sender, Iteration iter);
  /// Iterations of a sender's updates, ascending.
  std::vector<Iteration> iterations(std::size_t sender) const;

 private:
  static std::size_t slot_bytes(std::size_t senders, Iteration sub_queues);
  static std::size_t stride_of(std::size_t update_bytes);
  std::size_t slot_of(Iteration iter) const { return static_cast<std::size_t>(iter % slots_); }
  UpdateSlot& slot_at(std::size_t sender, std::size_t slot) const { return words_[sender * slots_ + slot]; }
  std::optional<Claim> claim_slot(std::size_t sender, std::size_t slot, Iteration iter);

  std::size_t slots_;  // per sender
  std::size_t stride_;
  UpdateSlot* words_;
  std::byte* values_;
};

}  // namespace pyc
