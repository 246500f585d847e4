#include "services/hop/token_queue_collective.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace pyc {
namespace {

/// The sum of two such numbers fits in 64 bits.
constexpr Iteration kMostTokens = Iteration{1} << 62U;

}  // namespace

std::shared_ptr<TokenQueueCollective> TokenQueueCollective::create(std::shared_ptr<Engine> engine, Memory& memory,
                                                                   HopOptions options, Rank owner, Rank taker,
                                                                   const Nodes& nodes, Seconds timeout,
                                                                   const Engine::Interrupt& interrupt) {
  std::shared_ptr<TokenQueueCollective> made(
      new TokenQueueCollective(*engine, memory, std::move(options), owner, taker, nodes));
  const OnNode on_node = made->on_node();
  return created(std::move(engine), std::move(made), on_node, timeout, interrupt);
}

TokenQueueCollective::TokenQueueCollective(Engine& engine, Memory& memory, HopOptions options, Rank owner, Rank taker,
                                           const Nodes& nodes)
    : HopMember(engine, memory, std::move(options), nodes, "token queue"), owner_(owner), taker_(taker) {}

void TokenQueueCollective::enqueue(Iteration tokens) {
  check_open();
  if (size() + tokens > kMostTokens) {
    throw std::invalid_argument("'" + name() + "': enqueue: expected at most " + std::to_string(kMostTokens) +
                                " tokens in the queue, got " + std::to_string(size()) + " + " + std::to_string(tokens));
  }
  give_tokens(taker_, tokens, 0);
}

void TokenQueueCollective::dequeue(Iteration tokens, Seconds timeout, const Engine::Interrupt& interrupt) {
  check_open();
  wait_for({.what = "dequeue",
            .done = [&] { return has_left(owner_) || size() >= tokens; },
            .awaited = [this] { return std::vector{hop::any_token_of(owner_)}; }},
           timeout, interrupt);
  if (size() < tokens) return;
  queue().remove(tokens);
  if (!is_local(owner_)) engine_->exclusively([&] { mailbox().send(owner_, hop::Removed{tokens}); });
}

}  // namespace pyc
