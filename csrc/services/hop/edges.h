// The edges of one rank to neighbors on other nodes: how an update gets into the receiver's queue.
//
// The sender keeps a copy and offers it. The receiver's engine looks at its iteration: it declines what is stale (the
// inquiry of section 6.2), else it posts a receive into the slot of its update queue and accepts, upon which the update
// is sent. So every receive is matched, nothing is ever cancelled, and no application takes part but the sender's.
// Messages between two ranks keep their order, so offers, receives and sends of an edge do too.
//
// Copies are kept for the iterations that may be on their way at once, max_ig + 1. One copy serves all receivers.
//
// Under the engine's progress lock, but for `hold` and `can_hold`, which are the application's.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/run.h"
#include "memory/memory.h"
#include "schedule/schedule.h"
#include "services/hop/messages.h"
#include "services/hop/options.h"
#include "services/hop/update_queue.h"

namespace pyc {

class HopEdges {
 public:
  /// Of `engine`'s rank; `receivers` and `senders` are neighbors on other nodes, and `updates` is the queue of this
  /// rank, whose senders are `options.in_of(rank)`.
  HopEdges(Engine& engine, Memory& memory, const HopOptions& options, UpdateQueue& updates,
           const std::vector<Rank>& receivers, const std::vector<Rank>& senders);
  /// Before anything else, with the tags of `collective`.
  void open(std::uint32_t collective);

  /// Of the copies that it keeps.
  std::size_t bytes() const { return copies_.size() * options_.update_bytes(); }

  // ---- sending

  /// Whether the memory for updates of an iteration is free: what it held before is with all receivers, or declined.
  bool can_hold(Iteration iter) const { return held_[slot_of(iter)].load(std::memory_order_acquire) == 0; }
  /// Keeps a copy of the update of an iteration, unless it has one that is on its way.
  void hold(Iteration iter, const std::byte* values);
  void offer(Rank to, Iteration iter);
  /// Whether that memory is kept for `to`, a receiver.
  bool is_open(Rank to, Iteration iter) const { return giving_.at(to).is_open[slot_of(iter)].load(); }

  // ---- receiving and progress

  /// To the offer of a rank: no use for that update; or room, now or later.
  enum class Answer : std::uint8_t { kDecline, kAccept, kLater };
  using Answers = std::function<Answer(Rank, Iteration)>;
  /// Starts and ends what can be. Whether anything moved.
  bool advance(const Answers& answer);
  /// Nothing is on its way in either direction.
  bool idle() const { return open_ == 0; }
  bool empty() const { return giving_.empty() && taking_.empty(); }

  // What other ranks have sent.
  void offered(Rank by, Iteration iter);
  void accepted(Rank by, Iteration iter) { giving_.at(by).accepted.push_back(iter); }
  void declined(Rank by, Iteration iter) { release(giving_.at(by), iter); }

 private:
  struct Plan {
    Schedule schedule;
    Slice values;
    OpId release;
  };
  struct Giving {
    std::vector<Rank> peers;                 // by rank of the plan
    std::vector<std::unique_ptr<Run>> runs;  // by slot
    std::vector<std::atomic<bool>> is_open;  // by slot: offered, and neither declined nor sent
    std::vector<bool> is_giving;             // by slot
    std::deque<Iteration> accepted;          // ... and not sent
  };
  struct Taking {
    std::vector<Rank> peers;
    std::vector<std::unique_ptr<Run>> runs;  // by slot of the update queue
    std::vector<bool> is_taking;
    std::deque<Iteration> offered;  // ... and not answered
    std::size_t sender;             // place among the in-neighbors
  };

  hop::Messages mailbox() const { return {engine_, collective_}; }
  static Plan plan(Rank rank, std::size_t bytes);
  std::unique_ptr<Run> make_run(const Plan& plan, const std::vector<Rank>& peers);
  static void start(Run& run, const Plan& plan, Iteration iter, std::byte* values, bool present);
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
  const Plan giving_plan_, taking_plan_;
  std::unordered_map<Rank, Giving> giving_;
  std::unordered_map<Rank, Taking> taking_;
  std::vector<BufferPtr> copies_;                 // by slot
  std::vector<Iteration> copied_;                 // + 1: of which iteration the copy is; the application's
  std::vector<std::atomic<std::uint32_t>> held_;  // by slot: receivers that have not got or declined it
  std::size_t open_ = 0;                          // offers of this rank, and those of others that it has accepted
};

}  // namespace pyc
