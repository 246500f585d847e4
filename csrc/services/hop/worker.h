// The worker of one rank: Figs 4, 7, 8 and 9, NOTIFY-ACK (section 3.3) and skipped iterations (section 5), in one
// program.
//
//   enter     go on to the next iteration: get tokens, or jump; Send, in the parallel graph
//   step      Compute's result is there: Recv, Reduce and Apply; or Apply, Send, Recv and Reduce, in the serial graph
//
// Both may lack something that neighbors have not done. They are then false, have done what can be done, and are to be
// called again. No I/O, no clock, no waiting; one thread.
//
// What the paper leaves open, or says in two ways:
//   own update     N_in has a self-loop (section 3.1). The own parameters are that update; they take no slot.
//   Fig. 9         "max(size, 1)" in line 6 would wait for a new update in each iteration. Section 4.4 says that one
//                  received earlier will do, and so it is here; only new ones are reduced, as there.
//   Recv(k - 1)    before a jump to k: the own parameters count as the own update of iteration k - 1.
//   a jump         not beyond an out-neighbor (section 5). So no out-neighbor misses an update of what is skipped: each
//                  is in a later iteration. Nor beyond in-neighbors whose update of iteration k - 1 it needs: where
//                  edges have a direction they may wait for this rank's tokens.
//   ranks leave    who has left takes part in no later iteration: nobody waits for it, and it is in no N_in.
#pragma once

#include <cstddef>
#include <vector>

#include "memory/memory.h"
#include "services/common/weighted_sum.h"
#include "services/hop/awaited.h"
#include "services/hop/links.h"
#include "services/hop/options.h"

namespace pyc {

/// An update that was reduced.
struct HopUpdate {
  Rank sender;
  Iteration iteration;
};

struct HopStatistics {
  std::uint64_t iterations = 0;  ///< computed
  std::uint64_t jumps = 0;
  std::uint64_t skipped = 0;   ///< iterations that jumps left out
  std::uint64_t received = 0;  ///< updates reduced
  std::uint64_t stale = 0;     ///< updates that came too late and were discarded
  std::uint64_t unsent = 0;    ///< updates not sent, since the receiver was past them: section 6.2
};

class HopWorker {
 public:
  /// Of a rank whose parameters are `model`, which nobody else writes. `links` and `options` outlive it.
  HopWorker(const HopOptions& options, Memory& memory, Rank rank, std::byte* model, HopLinks& links);

  /// Goes on to the next iteration, at first to iteration 0; by a jump to `last` at most. Whether it is in it now.
  bool enter(Iteration last);
  /// Ends the iteration. `delta`: what to add to the parameters, the same in calls that are repeated. Whether it has;
  /// once it has, a repeated call does nothing.
  bool step(const std::byte* delta);

  /// Iter(i).
  Iteration iteration() const { return iteration_; }
  /// Between `enter` and `step`: the gradients of this iteration are to be computed.
  bool computes() const { return stage_ == Stage::kComputing; }
  bool in_step() const { return stage_ == Stage::kSendingApplied || stage_ == Stage::kReceiving; }
  /// It takes part in iterations below this one: their updates are sent.
  Iteration participated() const { return sent_; }
  /// Whom it waits for.
  std::vector<Awaited> awaited() const;

  /// What it has reduced last besides its own update, in the order of senders.
  const std::vector<HopUpdate>& received() const { return received_; }
  const HopStatistics& statistics() const { return statistics_; }

 private:
  enum class Stage : std::uint8_t {
    kBefore,          // iteration 0
    kBetween,         // an iteration has ended
    kRenewing,        // Recv before a jump
    kTaking,          // tokens
    kSending,         // in the parallel graph: Send
    kComputing,       // the application
    kSendingApplied,  // in the serial graph: Send
    kReceiving,       // Recv
  };

  const std::vector<Rank>& in() const { return options_.in_of(rank_); }
  const std::vector<Rank>& out() const { return options_.out_of(rank_); }
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
  Iteration ahead_ = 0;  // by how much the iteration grows next
  Iteration sent_ = 0;
  std::vector<Iteration> newest_received_;  // iter_rcv + 1 of Fig. 9, by in-neighbor
  std::vector<UpdateQueue::Claim> claims_;  // of what is reduced
  std::vector<Term> terms_;
  double own_weight_ = 1;
  std::vector<HopUpdate> received_;
  HopStatistics statistics_;
};

}  // namespace pyc
