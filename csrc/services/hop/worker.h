// The worker of one rank: Figs 4, 7, 8 and 9, NOTIFY-ACK (section 3.3) and skipped iterations (section 5), in one
// program.
//
//   enter     starts the next iteration: takes tokens or jumps; Send, in the parallel graph
//   step      after Compute: Recv, Reduce and Apply; or Apply, Send, Recv and Reduce, in the serial graph
//
// Both return false if a neighbor's contribution is missing; they have then done all they can, and are called again. No
// I/O, no clock, no waiting; one thread.
//
// Choices where the paper is ambiguous (docs/design.md, Hop):
//   own update     N_in has a self-loop (section 3.1): the own parameters are that update, and take no slot.
//   Fig. 9         unlike line 6, an earlier update is accepted again (section 4.4). Only new ones are reduced.
//   Recv(k - 1)    before a jump to k, the own parameters count as the own update of iteration k - 1.
//   a jump         ends at the slowest out-neighbor (section 5), so none misses a skipped update; also at in-neighbors
//                  whose update of iteration k - 1 it needs, because they may wait for this rank's tokens.
//   ranks leave    no rank waits for one that has left, and it is in no later N_in.
#pragma once

#include <cstddef>
#include <vector>

#include "memory/memory.h"
#include "services/common/weighted_sum.h"
#include "services/hop/awaited.h"
#include "services/hop/links.h"
#include "services/hop/options.h"

namespace pyc {

struct HopUpdate {
  Rank sender;
  Iteration iteration;
};

struct HopStatistics {
  std::uint64_t iterations = 0;
  std::uint64_t jumps = 0;
  std::uint64_t skipped = 0;
  std::uint64_t received = 0;
  std::uint64_t stale = 0;   ///< updates that arrived too late and were discarded
  std::uint64_t unsent = 0;  ///< updates not sent, because the receiver was past them (section 6.2)
};

class HopWorker {
 public:
  /// `model` is the rank's parameters, which only the worker writes. `links` and `options` outlive it.
  HopWorker(const HopOptions& options, Memory& memory, Rank rank, std::byte* model, HopLinks& links);

  /// Enters the next iteration, initially 0; jumps to `last` at most. Returns whether it is in that iteration.
  bool enter(Iteration last);
  /// Ends the iteration and adds `delta` to the parameters. Returns whether it has ended; until then, calls are
  /// repeated with the same `delta`, and afterwards they do nothing.
  bool step(const std::byte* delta);

  Iteration iteration() const { return iteration_; }
  /// Between `enter` and `step`: the application computes the gradients of this iteration.
  bool computes() const { return stage_ == Stage::kComputing; }
  bool in_step() const { return stage_ == Stage::kSendingApplied || stage_ == Stage::kReceiving; }
  /// It takes part in iterations below this one, and has sent their updates.
  Iteration participated() const { return sent_; }
  std::vector<Awaited> awaited() const;

  /// Updates of other ranks in the last reduction, in the order of senders.
  const std::vector<HopUpdate>& received() const { return received_; }
  const HopStatistics& statistics() const { return statistics_; }

 private:
  enum class Stage : std::uint8_t {
    kBefore,          // before iteration 0
    kBetween,         // an iteration has ended
    kRenewing,        // Recv before a jump
    kTaking,          // takes tokens
    kSending,         // Send, in the parallel graph
    kComputing,       // the application computes
    kSendingApplied,  // Send, in the serial graph
    kReceiving,       // Recv
  };

  const std::vector<Rank>& in() const { return options_.in_of(rank_); }
  const std::vector<Rank>& out() const { return options_.out_of(rank_); }
  std::size_t backup() const { return options_.backup[static_cast<std::size_t>(rank_)]; }
  bool stays(Rank rank) const { return links_.left(rank) == kNeverIteration; }

  Iteration length_of_step(Iteration last) const;
  Iteration reached_by_senders() const;
  bool take_tokens();
  void check_gaps() const;
  bool send();
  void apply(const std::byte* delta);
  bool receive(Iteration k);
  bool receive_iteration(Iteration k);
  bool receive_recent(Iteration k, Iteration s);
  Iteration newest_from(std::size_t sender) const;
  void take(const UpdateQueue::Claim& claim, double weight);
  void reduce(const std::byte* delta);

  const HopOptions& options_;
  Memory& memory_;
  const Rank rank_;
  std::byte* const model_;
  HopLinks& links_;
  WeightedSum sum_;

  Stage stage_ = Stage::kBefore;
  Iteration iteration_ = 0;
  Iteration ahead_ = 0;  // next increment of the iteration
  Iteration sent_ = 0;
  std::vector<Iteration> newest_received_;  // iter_rcv + 1 of Fig. 9, by in-neighbor
  std::vector<UpdateQueue::Claim> claims_;  // updates being reduced
  std::vector<Term> terms_;
  double own_weight_ = 1;
  std::vector<HopUpdate> received_;
  HopStatistics statistics_;
};

}  // namespace pyc
