#include "services/hop/hop.h"

#include <utility>

#include "core/error.h"
#include "services/common/creation.h"
#include "services/common/node_memory.h"

namespace pyc {

std::shared_ptr<Hop> Hop::create(std::shared_ptr<Engine> engine, Memory& memory, HopOptions options, std::byte* model,
                                 const Nodes& nodes, Seconds timeout, const Engine::Interrupt& interrupt) {
  Engine& e = *engine;
  std::shared_ptr<Hop> made(new Hop(e, memory, std::move(options), nodes));
  Hop& m = *made;
  share_memory(
      e, nodes, HopBoard::bytes(m.options_, nodes, e.rank()), "the memory of '" + m.name() + "'",
      [&](const std::shared_ptr<SharedMemory>& shared) { m.make_board(shared, model); }, timeout, interrupt);
  return enroll(std::move(engine), std::move(made), [&](std::uint32_t id) { m.set_id(id); });
}

std::shared_ptr<Hop> Hop::join(std::shared_ptr<Engine> engine, Memory& memory, HopOptions options, std::byte* model,
                               const Nodes& nodes, const std::shared_ptr<SharedMemory>& shared) {
  std::shared_ptr<Hop> made(new Hop(*engine, memory, std::move(options), nodes));
  made->make_board(shared, model);
  Hop& m = *made;
  return enroll(std::move(engine), std::move(made), [&](std::uint32_t id) { m.set_id(id); });
}

Hop::Hop(Engine& engine, Memory& memory, HopOptions options, const Nodes& nodes)
    : engine_(&engine),
      memory_(memory),
      options_(std::move(options)),
      nodes_(nodes),
      neighbors_(options_.neighbors_of(engine.rank())),
      reports_(static_cast<std::size_t>(engine.size())),
      called_(engine.transport().now()) {}

/// And what else may be refused: an error here is one on all ranks.
void Hop::make_board(const std::shared_ptr<SharedMemory>& shared, std::byte* model) {
  board_ = std::make_unique<HopBoard>(std::shared_ptr<std::byte>(shared, shared->data()), options_, nodes_, rank());
  HopLinks& links = *this;
  worker_ = std::make_unique<HopWorker>(options_, memory_, rank(), model, links);
}

void Hop::set_id(std::uint32_t id) {
  id_ = id;
  const auto on_other_nodes = [this](const std::vector<Rank>& ranks) {
    std::vector<Rank> others;
    for (const Rank r : ranks) {
      if (!is_local(r)) others.push_back(r);
    }
    return others;
  };
  for (const Rank r : on_other_nodes(neighbors_)) remotes_[r] = std::make_unique<Remote>();
  edges_ = std::make_unique<HopEdges>(*engine_, memory_, id, options_, updates(),
                                      on_other_nodes(options_.out_of(rank())), on_other_nodes(options_.in_of(rank())));
}

bool Hop::try_enter(Iteration last) {
  const bool entered = worker_->enter(last);
  sent_ = worker_->participated();
  return entered;
}

bool Hop::try_step(const std::byte* delta) {
  const bool ended = worker_->step(delta);
  sent_ = worker_->participated();
  return ended;
}

// ------------------------------------------------------------------------------------------------ the queues

TokenQueue Hop::tokens_from(Rank of) const {
  return is_local(of) ? board_->tokens(of, rank()) : TokenQueue(remote(of).tokens, options_.max_ig);
}

Iteration Hop::tokens_for(Rank of) const { return board_->tokens(rank(), of).size(); }

std::size_t Hop::queued() const {
  std::size_t count = 0;
  for (std::size_t i = 0; i < options_.in_of(rank()).size(); ++i) count += board_->updates(rank()).size(i);
  return count;
}

void Hop::enqueue(Rank to, Iteration iter, const std::byte* values) {
  if (is_local(to)) {
    UpdateQueue& queue = board_->updates(to);
    const std::size_t sender = options_.position(to, rank());
    const std::size_t slot = queue.begin_enqueue(sender, iter);
    memory_.copy(queue.values(sender, slot), values, options_.bytes());
    queue.end_enqueue(sender, slot, iter);
    return board_->ring(to);
  }
  edges_->hold(iter, values);
  engine_->exclusively([&] { edges_->offer(to, iter); });
}

void Hop::insert_tokens(Rank of, Iteration tokens, Iteration iter) {
  board_->tokens(rank(), of).insert(tokens);
  if (is_local(of)) return board_->ring(of);
  if (left(of) != kNeverIteration) return;
  engine_->exclusively([&] { mailbox().send(of, hop::Tokens{tokens, iter}); });
}

/// Acknowledged to those alone who wait for it.
void Hop::acknowledge(Iteration iterations) {
  board_->standing(rank()).reduced.store(iterations);
  if (!options_.acks) return;
  for (const Rank j : options_.in_of(rank())) {
    if (is_local(j)) {
      board_->ring(j);
    } else {
      engine_->exclusively([&] { mailbox().send(j, hop::Reduced{iterations}); });
    }
  }
}

// ------------------------------------------------------------------------------------------------ the engine

/// Of an update that is offered. Who has left takes none.
bool Hop::is_stale(Iteration of) const {
  return closed_ || options_.is_stale(of, board_->standing(engine_->rank()).iteration.load());
}

bool Hop::advance() {
  return !edges_->empty() && edges_->advance([this](Iteration of) { return is_stale(of); });
}

namespace {

/// Neighbors' numbers only grow, whatever brings them.
void raise(std::atomic<Iteration>& number, Iteration to) {
  if (number.load() < to) number.store(to);
}

}  // namespace

void Hop::on_message(Rank from, ConstBytes bytes) {
  const auto receive = Handlers{
      [this](Rank by, const hop::Offer& offer) {
        raise(remote(by).standing.iteration, offer.iteration);
        edges_->offered(by, offer.iteration);
      },
      [this](Rank by, const hop::Accept& accept) { edges_->accepted(by, accept.iteration); },
      [this](Rank by, const hop::Decline& decline) { edges_->declined(by, decline.iteration); },
      [this](Rank by, const hop::Tokens& tokens) {
        raise(remote(by).standing.iteration, tokens.iteration);
        TokenQueue(remote(by).tokens, options_.max_ig).insert(tokens.tokens);
      },
      [this](Rank by, const hop::Reduced& reduced) { raise(remote(by).standing.reduced, reduced.iterations); },
      [this](Rank by, const hop::Left& left) { remote(by).standing.left.store(left.iteration); },
      [this](Rank by, const hop::Inquiry& inquiry) { mailbox().send(by, hop::Answer{own_report(inquiry)}); },
      [this](Rank by, const hop::Answer& answer) { reports_[static_cast<std::size_t>(by)] = answer.report; },
  };
  hop::Messages::deliver(from, bytes, receive);
}

// ------------------------------------------------------------------------------------------------ the end

void Hop::close() {
  engine_->check_process();
  engine_->exclusively([this] { leave(); });
  engine_->advance();
}

void Hop::leave() {
  if (closed_) return;
  closed_ = true;
  engine_->recorder().left(id_);
  const Iteration end = sent_.load();
  board_->standing(rank()).left.store(end);
  for (const Rank r : neighbors_) {
    if (is_local(r)) {
      board_->ring(r);
    } else {
      mailbox().send(r, hop::Left{end});
    }
  }
}

std::vector<Rank> Hop::not_closed() const {
  std::vector<Rank> ranks;
  if (!closed_) ranks.push_back(rank());
  for (const Rank r : neighbors_) {
    if (left(r) == kNeverIteration) ranks.push_back(r);
  }
  return ranks;
}

}  // namespace pyc
