#include "services/hop/hop.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace pyc {

std::shared_ptr<Hop> Hop::create(std::shared_ptr<Engine> engine, Memory& memory, HopOptions options, std::byte* model,
                                 const Nodes& nodes, Seconds timeout, const Engine::Interrupt& interrupt) {
  std::shared_ptr<Hop> made(new Hop(*engine, memory, std::move(options), model, nodes));
  const OnNode on_node = made->on_node();
  return created(std::move(engine), std::move(made), on_node, timeout, interrupt);
}

std::shared_ptr<Hop> Hop::join(std::shared_ptr<Engine> engine, Memory& memory, HopOptions options, std::byte* model,
                               const Nodes& nodes, std::shared_ptr<SharedMemory>& shared) {
  std::shared_ptr<Hop> made(new Hop(*engine, memory, std::move(options), model, nodes));
  const OnNode on_node = made->on_node();
  return joined(std::move(engine), std::move(made), on_node, shared);
}

Hop::Hop(Engine& engine, Memory& memory, HopOptions options, std::byte* model, const Nodes& nodes)
    : HopMember(engine, memory, std::move(options), nodes, "hop"),
      worker_(options_, memory, engine.rank(), model, links()) {}

// ------------------------------------------------------------------------------------------------ the application

void Hop::enter(Iteration last, Seconds timeout, const Engine::Interrupt& interrupt) {
  check_open();
  if (worker_.computes() || worker_.in_step()) {
    throw std::runtime_error("'" + name() + "': iteration " + std::to_string(worker_.iteration()) +
                             " has not ended; call step first");
  }
  const std::string from =
      worker_.participated() == 0 ? "the first iteration" : "the iteration after " + std::to_string(iteration(rank()));
  wait_for_worker(from, [&] { return try_enter(last); }, timeout, interrupt);
  computing_since_ = track().now();
}

void Hop::step(const std::byte* delta, Seconds timeout, const Engine::Interrupt& interrupt) {
  check_open();
  if (!worker_.computes() && !worker_.in_step()) {
    throw std::runtime_error("'" + name() + "': step: no iteration has begun; call step once in each of iterations()");
  }
  if (worker_.computes()) track().add("compute", computing_since_, worker_.iteration());
  wait_for_worker(
      "step of iteration " + std::to_string(worker_.iteration()), [&] { return try_step(delta); }, timeout, interrupt);
}

void Hop::wait_for_worker(const std::string& what, const std::function<bool()>& act, Seconds timeout,
                          const Engine::Interrupt& interrupt) {
  wait_for({.what = what, .done = act, .awaited = [this] { return worker_.awaited(); }}, timeout, interrupt);
}

bool Hop::try_enter(Iteration last) {
  const bool entered = worker_.enter(last);
  sent_ = worker_.participated();
  return entered;
}

bool Hop::try_step(const std::byte* delta) {
  const bool ended = worker_.step(delta);
  sent_ = worker_.participated();
  return ended;
}

// ------------------------------------------------------------------------------------------------ the neighbors

/// Only in-neighbors wait for acknowledgments.
void Hop::acknowledge(Iteration iterations) {
  own_standing().reduced.store(iterations);
  if (!options_.acks) return;
  for (const Rank j : options_.in_of(rank())) {
    if (is_local(j)) {
      notify(j);
    } else {
      engine_->exclusively([&] { mailbox().send(j, hop::Reduced{iterations}); });
    }
  }
}

HopEdges::Answer Hop::answer(Rank, Iteration iter) const {
  const bool is_stale = closed() || options_.is_stale(iter, own_standing().iteration.load());
  return is_stale ? HopEdges::Answer::kDecline : HopEdges::Answer::kAccept;
}

}  // namespace pyc
