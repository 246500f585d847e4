// The edges of one rank to neighbors on other nodes, which move updates into the receivers' queues.
//
// The sender keeps a copy and offers it. The receiver's engine declines a stale update (the inquiry of section 6.2);
// otherwise it posts a receive into the slot of its update queue and accepts, and the sender sends. Every receive is
// matched, nothing is cancelled, and only the sender's application takes part. Offers, receives and sends of an edge
// keep their order, like all messages between two ranks. One copy serves all receivers; copies exist for max_ig + 1
// iterations, the most that may be in transit at once.
//
// Under the engine's progress lock, except `hold`, `can_hold` and `is_open`, which the application calls.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/transfer.h"
#include "memory/memory.h"
#include "services/hop/messages.h"
#include "services/hop/options.h"
#include "services/hop/update_queue.h"

namespace pyc {

class HopEdges {
 public:
  /// `receivers` and `senders` are on other nodes. `updates` is this rank's queue, of the senders
  /// `options.in_of(rank)`.
  HopEdges(Engine& engine, Memory& memory, const HopOptions& options, UpdateQueue& updates,
           const std::vector<Rank>& receivers, const std::vector<Rank>& senders);
  /// Comes first. Sets the tags of `collective`.
  void open(std::uint32_t collective);

  std::size_t bytes() const { return copies_.size() * options_.update_bytes(); }

  // ---- sending

  /// Whether the copy for an iteration is free, because all receivers have received or declined its last update.
  bool can_hold(Iteration iter) const { return held_[slot_of(iter)].load(std::memory_order_acquire) == 0; }
  /// Copies the update of an iteration, unless the copy exists and is in use for another receiver.
  void hold(Iteration iter, const std::byte* values);
  void offer(Rank to, Iteration iter);
  /// Whether that copy is in use for receiver `to`.
  bool is_open(Rank to, Iteration iter) const { return giving_.at(to).is_open[slot_of(iter)].load(); }

  // ---- receiving and progress

  /// Answers to an offer: the update is not needed, or there is room for it now or later.
  enum class Answer : std::uint8_t { kDecline, kAccept, kLater };
  using Answers = std::function<Answer(Rank, Iteration)>;
  /// Starts and completes transfers. Returns whether anything changed.
  bool advance(const Answers& answer);
  bool idle() const { return open_ == 0; }
  bool empty() const { return giving_.empty() && taking_.empty(); }

  void offered(Rank by, Iteration iter);
  void accepted(Rank by, Iteration iter) { giving_.at(by).accepted.push_back(iter); }
  void declined(Rank by, Iteration iter) { release(giving_.at(by), iter); }

 private:
  struct Giving {
    std::vector<std::unique_ptr<Transfer>> transfers;  // by slot
    std::vector<std::atomic<bool>> is_open;            // by slot: offered, and neither declined nor sent
    std::vector<bool> is_giving;                       // by slot: its transfer is under way
    std::deque<Iteration> accepted;                    // not sent yet
  };
  struct Taking {
    std::vector<std::unique_ptr<Transfer>> transfers;  // by slot of the update queue
    std::vector<bool> is_taking;
    std::deque<Iteration> offered;  // not answered yet
    std::size_t sender;             // index in `in_of`
  };

  hop::Messages mailbox() const { return {engine_, collective_}; }
  std::vector<std::unique_ptr<Transfer>> transfers(Rank peer, bool sends);
  std::size_t slot_of(Iteration iter) const { return static_cast<std::size_t>(iter % options_.sub_queues()); }
  bool give(Giving& edge);
  bool take(Rank from, Taking& edge, const Answers& answer);
  bool is_slot_busy(const Taking& edge, Iteration iter) const;
  void release(Giving& edge, Iteration iter);

  Engine& engine_;
  Memory& memory_;
  std::uint32_t collective_ = 0;
  const HopOptions& options_;
  UpdateQueue& updates_;
  std::unordered_map<Rank, Giving> giving_;
  std::unordered_map<Rank, Taking> taking_;
  std::vector<BufferPtr> copies_;                 // by slot
  std::vector<Iteration> copied_;                 // by slot: iteration of the copy, plus 1; only for the application
  std::vector<std::atomic<std::uint32_t>> held_;  // by slot: receivers that have not received or declined it
  std::size_t open_ = 0;                          // offers of this rank and to it that are not complete
};

}  // namespace pyc
