// UpdateQ(i) of section 4.1: the updates that the in-neighbors of rank i have sent, each tagged with its iteration and
// its sender.
//
// For each sender there are max_ig + 1 slots, used in rotation: the update of iteration k goes to slot k modulo their
// number (section 6.1). They are all the memory there is, (max_ig + 1) |N_in(i)| slots, made at creation. A sender
// writes into the slot itself, wherever the receiver is; it may be a process of the same node, or the receiver's engine
// for a rank of another node. What still lies there is older by max_ig + 1 iterations and is discarded: the receiver,
// whose token the sender has, is in a later iteration.
//
// A writer that finds its slot claimed (update_slot.h) writes the next one. That happens under bounded staleness alone,
// where the receiver may read an update of an earlier iteration, and where the newest update of a sender is all that
// counts.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "services/hop/options.h"
#include "services/hop/update_slot.h"

namespace pyc {

class UpdateQueue {
 public:
  /// Of zeroed memory, aligned to a cache line.
  static std::size_t bytes(std::size_t senders, Iteration sub_queues, std::size_t update_bytes);
  UpdateQueue(std::byte* memory, std::size_t senders, Iteration sub_queues, std::size_t update_bytes);

  // ---- a sender, named by its place among the in-neighbors

  /// The slot that an update of iteration `iter` is to be written to; emptied.
  std::size_t begin_enqueue(std::size_t sender, Iteration iter);
  std::byte* values(std::size_t sender, std::size_t slot) const { return values_ + (sender * slots_ + slot) * stride_; }
  /// Whether its slot has nothing that the receiver still needs: no update of iteration `oldest` or later.
  bool has_room(std::size_t sender, Iteration iter, Iteration oldest) const;
  void end_enqueue(std::size_t sender, std::size_t slot, Iteration iter) { slot_at(sender, slot).fill(iter); }

  // ---- the receiver

  /// An update that it reads. It stays in the queue until `dequeue`.
  struct Claim {
    std::size_t sender;
    std::size_t slot;
    Iteration iter;
  };
  bool has(std::size_t sender, Iteration iter) const { return slot_at(sender, slot_of(iter)).is_full_of(iter); }
  std::optional<Iteration> newest(std::size_t sender) const;
  /// Of the update of that iteration, which is in its slot; nothing if it is not.
  std::optional<Claim> claim(std::size_t sender, Iteration iter);
  /// Of the newest update of a sender.
  std::optional<Claim> claim_newest(std::size_t sender);
  /// Puts back what was not read.
  void release(const Claim& claim) { slot_at(claim.sender, claim.slot).release(claim.iter); }
  void dequeue(const Claim& claim) { slot_at(claim.sender, claim.slot).dequeue(); }
  /// Updates of earlier iterations are of no use any more; how many there were.
  std::size_t discard_before(std::size_t sender, Iteration iter);
  /// Of the updates of a sender, ascending.
  std::vector<Iteration> iterations(std::size_t sender) const;

 private:
  static std::size_t slot_bytes(std::size_t senders, Iteration sub_queues);
  static std::size_t stride_of(std::size_t update_bytes);
  std::size_t slot_of(Iteration iter) const { return static_cast<std::size_t>(iter % slots_); }
  UpdateSlot& slot_at(std::size_t sender, std::size_t slot) const { return words_[sender * slots_ + slot]; }
  std::optional<Claim> claim_slot(std::size_t sender, std::size_t slot, Iteration iter);

  std::size_t slots_;  // of a sender
  std::size_t stride_;
  UpdateSlot* words_;
  std::byte* values_;
};

}  // namespace pyc
