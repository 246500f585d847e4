#include "services/hop/member.h"

#include <utility>

namespace pyc {

HopMember::HopMember(Engine& engine, Memory& memory, HopOptions options, const Nodes& nodes, const char* kind)
    : Service(engine, nodes, kind, options.name),
      memory_(memory),
      options_(std::move(options)),
      neighbors_(options_.neighbors_of(engine.rank())) {}

Service::OnNode HopMember::on_node() {
  return {.bytes = HopBoard::bytes(options_, nodes_, rank()),
          .make = [this](std::shared_ptr<std::byte> memory) { make(std::move(memory)); },
          .of_rank = HopBoard::bytes_of_rank(options_, rank())};
}

void HopMember::make(std::shared_ptr<std::byte> memory) {
  board_ = std::make_unique<HopBoard>(std::move(memory), options_, nodes_, rank());
  for (const Rank r : on_other_nodes(neighbors_)) remotes_[r] = std::make_unique<Remote>();
  edges_ = std::make_unique<HopEdges>(*engine_, memory_, options_, board_->updates(rank()),
                                      on_other_nodes(options_.out_of(rank())), on_other_nodes(options_.in_of(rank())));
  add_memory(edges_->bytes());
}

// ------------------------------------------------------------------------------------------------ the queues

TokenQueue HopMember::tokens_from(Rank of) const {
  return is_local(of) ? board_->tokens(of, rank()) : TokenQueue(remote(of).tokens, options_.first_tokens());
}

void HopMember::give_tokens(Rank to, Iteration tokens, Iteration iter) {
  board_->tokens(rank(), to).insert(tokens);
  if (is_local(to)) return notify(to);
  if (has_left(to)) return;
  engine_->exclusively([&] { mailbox().send(to, hop::Tokens{tokens, iter}); });
}

std::size_t HopMember::queued() const {
  std::size_t count = 0;
  for (std::size_t i = 0; i < options_.in_of(rank()).size(); ++i) count += board_->updates(rank()).iterations(i).size();
  return count;
}

void HopMember::send_update(Rank to, Iteration iter, const std::byte* values) {
  if (is_local(to)) {
    UpdateQueue& queue = board_->updates(to);
    const std::size_t sender = options_.position(to, rank());
    const std::size_t slot = queue.begin_enqueue(sender, iter);
    memory_.copy(queue.values(sender, slot), values, options_.bytes());
    queue.end_enqueue(sender, slot, iter);
    return notify(to);
  }
  edges_->hold(iter, values);
  engine_->exclusively([&] { edges_->offer(to, iter); });
}

// ------------------------------------------------------------------------------------------------ the engine

bool HopMember::advance() {
  return !edges_->empty() && edges_->advance([this](Rank to, Iteration iter) { return answer(to, iter); });
}

namespace {

/// A neighbor's numbers only grow, whichever message has them.
void raise(std::atomic<Iteration>& number, Iteration to) {
  if (number.load() < to) number.store(to);
}

}  // namespace

void HopMember::receive(Rank from, ConstBytes bytes) {
  const auto receive = Handlers{
      [this](Rank by, const hop::Offer& offer) {
        raise(remote(by).standing.iteration, offer.iteration);
        edges_->offered(by, offer.iteration);
      },
      [this](Rank by, const hop::Accept& accept) { edges_->accepted(by, accept.iteration); },
      [this](Rank by, const hop::Decline& decline) { edges_->declined(by, decline.iteration); },
      [this](Rank by, const hop::Tokens& tokens) {
        raise(remote(by).standing.iteration, tokens.iteration);
        TokenQueue(remote(by).tokens, options_.first_tokens()).insert(tokens.tokens);
      },
      [this](Rank, const hop::Removed& removed) { on_removed(removed.tokens); },
      [this](Rank by, const hop::Reduced& reduced) { raise(remote(by).standing.reduced, reduced.iterations); },
      [this](Rank by, const hop::Left& left) { remote(by).standing.left.store(left.iteration); },
  };
  hop::Messages::deliver(from, bytes, receive);
}

std::optional<Report> HopMember::progress(std::uint64_t question) const {
  const Iteration iteration = question / 2;
  const bool of_update = question % 2 != 0;
  const bool has_come = of_update ? sent_.load() > iteration : own_standing().iteration.load() >= iteration;
  if (has_come) return Report{RankState::kArrived};
  return std::nullopt;
}

// ------------------------------------------------------------------------------------------------ closing

void HopMember::tell_closed() {
  const Iteration end = sent_.load();
  own_standing().left.store(end);
  for (const Rank r : neighbors_) {
    if (is_local(r)) {
      notify(r);
    } else {
      mailbox().send(r, hop::Left{end});
    }
  }
}

std::vector<Rank> HopMember::not_closed() const {
  std::vector<Rank> ranks;
  if (!closed()) ranks.push_back(rank());
  for (const Rank r : neighbors_) {
    if (!has_left(r)) ranks.push_back(r);
  }
  return ranks;
}

}  // namespace pyc
