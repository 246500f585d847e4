// Hop (Luo et al. 2019) as the application of one rank sees it: a worker (worker.h) on queues that lie in the memory of
// its node (board.h) or are joined by messages (edges.h).
//
// The application does the work: it copies its parameters into the queues of its node's neighbors, and reduces what
// lies in its own. The engine moves what goes to other nodes and comes from them, whatever the application does.
//
// A rank that leaves takes part in no iteration whose update it has not sent; its neighbors go on without it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/nodes.h"
#include "engine/collective.h"
#include "engine/engine.h"
#include "node/shared_memory.h"
#include "services/hop/board.h"
#include "services/hop/edges.h"
#include "services/hop/links.h"
#include "services/hop/options.h"
#include "services/hop/worker.h"

namespace pyc {

class Hop final : public Collective, private HopLinks {
 public:
  /// Collective over the engine's ranks; those of a node must share a machine. `model`: this rank's parameters, which
  /// outlive it and which it alone writes. StallError as `Engine::compare`; std::runtime_error on all ranks if the
  /// memory cannot be had on one. The result keeps the engine alive.
  static std::shared_ptr<Hop> create(std::shared_ptr<Engine> engine, Memory& memory, HopOptions options,
                                     std::byte* model, const Nodes& nodes, Seconds timeout,
                                     const Engine::Interrupt& interrupt);
  /// The same where all ranks are in one thread. `shared`: memory of HopBoard::bytes, one for each node.
  static std::shared_ptr<Hop> join(std::shared_ptr<Engine> engine, Memory& memory, HopOptions options, std::byte* model,
                                   const Nodes& nodes, const std::shared_ptr<SharedMemory>& shared);

  // ---- the application: one thread at a time

  /// HopWorker::enter and step, as often as it takes. StallError after `timeout` seconds (negative: no limit) names the
  /// neighbors and what they have not done; the call may be repeated then.
  void enter(Iteration last, Seconds timeout, const Engine::Interrupt& interrupt);
  void step(const std::byte* delta, Seconds timeout, const Engine::Interrupt& interrupt);
  /// The same without waiting; whether it is done.
  bool try_enter(Iteration last);
  bool try_step(const std::byte* delta);
  /// Leaves for good. The engine brings to others what they have been offered.
  void close();

  bool closed() const { return closed_; }
  const HopOptions& options() const { return options_; }
  const HopWorker& worker() const { return *worker_; }
  /// TokenQ(this rank -> of) and TokenQ(of -> this rank), as far as known here.
  Iteration tokens_for(Rank of) const;
  Iteration tokens_of(Rank of) const { return tokens(of); }
  /// Updates in this rank's queue.
  std::size_t queued() const;

  // ---- Collective

  bool advance() override;
  void on_message(Rank from, ConstBytes message) override;
  bool busy() const override { return !edges_->empty() && (!edges_->idle() || in_call_); }
  bool in_background() const override { return !edges_->empty(); }  // neighbors may offer at any time
  Seconds deadline() const override { return kNever; }
  bool finished() const override { return not_closed().empty() && edges_->idle(); }
  const std::string& name() const override { return options_.name; }
  void abort() override { leave(); }
  std::vector<Rank> not_closed() const override;
  void name_the_dead() const override { check_alive(); }
  bool has_waiting(Rank rank) const override { return rank == engine_->rank() && in_call_; }

 private:
  /// A neighbor on another node, as far as its messages say.
  struct Remote {
    HopStanding standing;
    TokenQueue::Counters tokens;  // of TokenQ(it -> this rank)
  };

  Hop(Engine& engine, Memory& memory, HopOptions options, const Nodes& nodes);
  void make_board(const std::shared_ptr<SharedMemory>& shared, std::byte* model);
  void set_id(std::uint32_t id);

  Rank rank() const { return engine_->rank(); }
  bool is_local(Rank of) const { return nodes_.of(of) == nodes_.of(rank()); }
  const HopStanding& standing(Rank of) const { return is_local(of) ? board_->standing(of) : remote(of).standing; }
  Remote& remote(Rank of) const { return *remotes_.at(of); }
  TokenQueue tokens_from(Rank of) const;
  hop::Messages mailbox() const { return {*engine_, id_}; }
  void leave();
  bool is_stale(Iteration of) const;

  // ---- HopLinks

  UpdateQueue& updates() override { return board_->updates(rank()); }
  void enqueue(Rank to, Iteration iter, const std::byte* values) override;
  bool can_enqueue(Iteration iter) const override { return edges_->can_hold(iter); }
  Iteration tokens(Rank of) const override { return tokens_from(of).size(); }
  void remove_tokens(Rank of, Iteration tokens) override { tokens_from(of).remove(tokens); }
  void insert_tokens(Rank of, Iteration tokens, Iteration iter) override;
  void entered(Iteration iter) override { board_->standing(rank()).iteration.store(iter); }
  void acknowledge(Iteration iterations) override;
  Iteration iteration(Rank of) const override { return standing(of).iteration.load(); }
  Iteration reduced(Rank by) const override { return standing(by).reduced.load(); }
  Iteration left(Rank by) const override { return standing(by).left.load(); }

  // ---- waiting

  void check_open() const;
  void wait_for(const std::string& what, const std::function<bool()>& done, Seconds timeout,
                const Engine::Interrupt& interrupt);
  bool sleep(Seconds limit);
  void check_alive() const;
  Report own_report(const hop::Inquiry& inquiry) const;
  std::string text_of_awaited() const;
  std::string explain(const std::string& what, Seconds waited, const std::function<bool()>& done,
                      const Engine::Interrupt& interrupt);

  Engine* const engine_;  // owns this
  Memory& memory_;
  const HopOptions options_;
  const Nodes nodes_;
  const std::vector<Rank> neighbors_;
  std::uint32_t id_ = 0;  // set before the first call
  std::unique_ptr<HopBoard> board_;
  std::unordered_map<Rank, std::unique_ptr<Remote>> remotes_;
  std::unique_ptr<HopEdges> edges_;
  std::unique_ptr<HopWorker> worker_;  // the application's

  std::vector<Report> reports_;      // by rank, to the newest inquiry
  std::atomic<Seconds> called_ = 0;  // when the application called last
  std::atomic<Iteration> sent_ = 0;  // the worker's, for others
  std::atomic<bool> in_call_{false};
  std::atomic<bool> closed_{false};
};

}  // namespace pyc
