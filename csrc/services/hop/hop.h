// Hop (Luo et al. 2019) on one rank: a worker (worker.h) on the queues of a member (member.h). The application copies
// its parameters into the queues of neighbors on its node, and reduces the updates in its own queue. The engine moves
// updates between nodes, whatever the application does.
#pragma once

#include <memory>
#include <vector>

#include "services/hop/links.h"
#include "services/hop/member.h"
#include "services/hop/worker.h"

namespace pyc {

class Hop final : public HopMember, private HopLinks {
 public:
  /// Collective over the engine's ranks; the ranks of a node must share a machine. `model` is this rank's parameters:
  /// it outlives the result, and nothing else writes it. Throws StallError like `Engine::compare`, and
  /// std::runtime_error on all ranks if one cannot allocate memory. The result keeps the engine alive.
  static std::shared_ptr<Hop> create(std::shared_ptr<Engine> engine, Memory& memory, HopOptions options,
                                     std::byte* model, const Nodes& nodes, Seconds timeout,
                                     const Engine::Interrupt& interrupt);
  /// For ranks in one thread: see Service::joined.
  static std::shared_ptr<Hop> join(std::shared_ptr<Engine> engine, Memory& memory, HopOptions options, std::byte* model,
                                   const Nodes& nodes, std::shared_ptr<SharedMemory>& shared);

  // ---- the application: one thread at a time

  /// HopWorker::enter and step, repeated until complete. After `timeout` seconds (negative: unlimited) they throw
  /// StallError with the neighbors and their missing contributions; the call may then be repeated.
  void enter(Iteration last, Seconds timeout, const Engine::Interrupt& interrupt);
  void step(const std::byte* delta, Seconds timeout, const Engine::Interrupt& interrupt);
  /// The same without waiting. Return whether the call is complete.
  bool try_enter(Iteration last);
  bool try_step(const std::byte* delta);

  const HopWorker& worker() const { return worker_; }
  Iteration tokens_of(Rank of) const { return tokens(of); }

 private:
  Hop(Engine& engine, Memory& memory, HopOptions options, std::byte* model, const Nodes& nodes);

  HopLinks& links() { return *this; }
  HopEdges::Answer answer(Rank to, Iteration iter) const override;
  void wait_for_worker(const std::string& what, const std::function<bool()>& act, Seconds timeout,
                       const Engine::Interrupt& interrupt);

  // ---- HopLinks

  UpdateQueue& updates() override { return board_->updates(rank()); }
  void enqueue(Rank to, Iteration iter, const std::byte* values) override { send_update(to, iter, values); }
  bool can_enqueue(Iteration iter) const override { return edges_->can_hold(iter); }
  bool is_sending(Rank to, Iteration iter) const override { return !is_local(to) && edges_->is_open(to, iter); }
  Iteration tokens(Rank of) const override { return tokens_from(of).size(); }
  void remove_tokens(Rank of, Iteration tokens) override { tokens_from(of).remove(tokens); }
  void insert_tokens(Rank of, Iteration tokens, Iteration iter) override { give_tokens(of, tokens, iter); }
  void entered(Iteration iter) override { own_standing().iteration.store(iter); }
  void acknowledge(Iteration iterations) override;
  Iteration iteration(Rank of) const override { return standing(of).iteration.load(); }
  Iteration reduced(Rank by) const override { return standing(by).reduced.load(); }
  Iteration left(Rank by) const override { return standing(by).left.load(); }

  HopWorker worker_;
  Seconds computing_since_ = 0;
};

}  // namespace pyc
