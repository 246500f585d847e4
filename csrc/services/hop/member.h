// One rank's part in queues that connect ranks in a graph: the board of its node, edges to other nodes, and the
// standing of neighbors. Derived classes add the calls. A rank that leaves takes part in no iteration whose update it
// has not sent; its neighbors continue without it.
#pragma once

#include <atomic>
#include <memory>
#include <unordered_map>
#include <vector>

#include "services/common/service.h"
#include "services/hop/awaited.h"
#include "services/hop/board.h"
#include "services/hop/edges.h"
#include "services/hop/messages.h"
#include "services/hop/options.h"

namespace pyc {

class HopMember : public Service {
 public:
  const HopOptions& options() const { return options_; }
  std::size_t queued() const;

  // ---- Collective

  bool advance() override;
  bool busy() const override { return !edges_->empty() && (!edges_->idle() || has_waiting(rank())); }
  bool in_background() const override { return !edges_->empty(); }  // neighbors may offer at any time
  bool finished() const override { return not_closed().empty() && edges_->idle(); }
  std::vector<Rank> not_closed() const override;

 protected:
  HopMember(Engine& engine, Memory& memory, HopOptions options, const Nodes& nodes, const char* kind);

  OnNode on_node();

  /// The engine's answer to rank `to` of another node, which offers an update. Under the engine's progress lock.
  virtual HopEdges::Answer answer(Rank to, Iteration iter) const = 0;

  /// A rank of another node has removed tokens from this rank's queue for it. Under the engine's progress lock.
  virtual void on_removed(Iteration) {}

  // ---- the neighbors

  const HopStanding& standing(Rank of) const { return is_local(of) ? board_->standing(of) : remote(of).standing; }
  HopStanding& own_standing() const { return board_->standing(rank()); }
  bool has_left(Rank of) const { return standing(of).left.load() != kNeverIteration; }
  /// TokenQ(of -> this rank).
  TokenQueue tokens_from(Rank of) const;
  hop::Messages mailbox() const { return {*engine_, id()}; }
  /// Into TokenQ(this rank -> to). This rank is in iteration `iter` now.
  void give_tokens(Rank to, Iteration tokens, Iteration iter);
  /// Into UpdateQ(to): directly on this node, otherwise by an offer.
  void send_update(Rank to, Iteration iter, const std::byte* values);

  Memory& memory_;
  const HopOptions options_;
  std::unique_ptr<HopBoard> board_;
  std::unique_ptr<HopEdges> edges_;
  std::atomic<Iteration> sent_{0};  // updates of iterations below this one are sent

 private:
  /// A neighbor on another node, as known from its messages.
  struct Remote {
    HopStanding standing;
    TokenQueue::Counters tokens;  // of TokenQ(neighbor -> this rank)
  };

  void make(std::shared_ptr<std::byte> memory);
  void open() override { edges_->open(id()); }
  void tell_closed() override;
  void receive(Rank from, ConstBytes message) override;
  std::optional<Report> progress(std::uint64_t question) const override;
  Remote& remote(Rank of) const { return *remotes_.at(of); }

  const std::vector<Rank> neighbors_;
  std::unordered_map<Rank, std::unique_ptr<Remote>> remotes_;
};

}  // namespace pyc
