// TokenQ(owner -> taker) as a collective (section 4.2): one rank inserts tokens, another removes them. Between nodes
// each knows the other's changes by messages. An owner that has left gives tokens without end, as in Hop.
#pragma once

#include <memory>
#include <vector>

#include "services/hop/member.h"

namespace pyc {

class TokenQueueCollective final : public HopMember {
 public:
  /// `options` has a graph of one edge, from `taker` to `owner`, and the first tokens. Otherwise like Hop::create.
  static std::shared_ptr<TokenQueueCollective> create(std::shared_ptr<Engine> engine, Memory& memory,
                                                      HopOptions options, Rank owner, Rank taker, const Nodes& nodes,
                                                      Seconds timeout, const Engine::Interrupt& interrupt);

  /// For the owner. Does not wait.
  void enqueue(Iteration tokens);
  /// For the taker: removes all or none. Throws StallError if there are too few tokens in time.
  void dequeue(Iteration tokens, Seconds timeout, const Engine::Interrupt& interrupt);
  Iteration size() const { return queue().size(); }

 private:
  TokenQueueCollective(Engine& engine, Memory& memory, HopOptions options, Rank owner, Rank taker, const Nodes& nodes);

  HopEdges::Answer answer(Rank, Iteration) const override { return HopEdges::Answer::kDecline; }
  void on_removed(Iteration tokens) override { queue().remove(tokens); }

  /// The owner's on one node; between nodes each rank has its own copy.
  TokenQueue queue() const { return rank() == owner_ ? board_->tokens(owner_, taker_) : tokens_from(owner_); }

  const Rank owner_, taker_;
};

}  // namespace pyc
