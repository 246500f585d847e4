// TokenQ(owner -> taker) by itself (section 4.2): one rank puts tokens in, another takes them out. Between nodes each
// knows what the other has told.
//
// An owner that has left gives tokens without end, as a rank of Hop that has ended.
#pragma once

#include <memory>
#include <vector>

#include "services/hop/member.h"

namespace pyc {

class TokenQueueCollective final : public HopMember {
 public:
  /// `options`: a graph of one edge, from `taker` to `owner`, and the first tokens. As Hop::create.
  static std::shared_ptr<TokenQueueCollective> create(std::shared_ptr<Engine> engine, Memory& memory,
                                                      HopOptions options, Rank owner, Rank taker, const Nodes& nodes,
                                                      Seconds timeout, const Engine::Interrupt& interrupt);

  /// Of the owner. Does not wait.
  void enqueue(Iteration tokens);
  /// Of the taker: all or nothing. StallError if there are not as many in time.
  void dequeue(Iteration tokens, Seconds timeout, const Engine::Interrupt& interrupt);
  /// Of either, as far as known here.
  Iteration size() const { return queue().size(); }

 private:
  TokenQueueCollective(Engine& engine, Memory& memory, HopOptions options, Rank owner, Rank taker, const Nodes& nodes);

  HopEdges::Answer answer(Rank, Iteration) const override { return HopEdges::Answer::kDecline; }
  void on_removed(Iteration tokens) override { queue().remove(tokens); }

  /// On one node: the owner's. Between nodes each has its own.
  TokenQueue queue() const { return rank() == owner_ ? board_->tokens(owner_, taker_) : tokens_from(owner_); }

  const Rank owner_, taker_;
};

}  // namespace pyc
