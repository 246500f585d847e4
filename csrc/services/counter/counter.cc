#include "services/counter/counter.h"

#include <algorithm>
#include <new>
#include <stdexcept>

namespace pyc {

SharedCounter::SharedCounter(Engine& engine, std::string name, std::uint64_t start, const Nodes& nodes)
    : Service(engine, nodes, "counter", std::move(name)),
      start_(start),
      elsewhere_([&] {
        std::vector<Rank> ranks;
        for (Rank r = 0; r < engine.size(); ++r) {
          if (nodes.of(r) != nodes.of(kHome)) ranks.push_back(r);
        }
        return ranks;
      }()),
      has_left_(static_cast<std::size_t>(engine.size())),
      known_(start) {}

Service::OnNode SharedCounter::on_node() {
  return {.bytes = is_at_home() ? sizeof(Head) + ranks() * sizeof(Served) : 0, .make = [this](auto memory) {
            memory_ = std::move(memory);
            if (rank() != kHome) return;
            new (memory_.get()) Head();
            value().store(start_);
            for (std::size_t r = 0; r < ranks(); ++r) new (served_of_all() + r) Served();
          }};
}

std::shared_ptr<SharedCounter> SharedCounter::create(std::shared_ptr<Engine> engine, std::string name,
                                                     std::uint64_t start, const Nodes& nodes, Seconds timeout,
                                                     const Engine::Interrupt& interrupt) {
  std::shared_ptr<SharedCounter> made(new SharedCounter(*engine, std::move(name), start, nodes));
  const OnNode on_node = made->on_node();
  return created(std::move(engine), std::move(made), on_node, timeout, interrupt);
}

std::shared_ptr<SharedCounter> SharedCounter::join(std::shared_ptr<Engine> engine, std::string name,
                                                   std::uint64_t start, const Nodes& nodes,
                                                   std::shared_ptr<SharedMemory>& shared) {
  std::shared_ptr<SharedCounter> made(new SharedCounter(*engine, std::move(name), start, nodes));
  const OnNode on_node = made->on_node();
  return joined(std::move(engine), std::move(made), on_node, shared);
}

// ------------------------------------------------------------------------------------------------ the application

std::uint64_t SharedCounter::fetch_add(std::uint64_t n, Seconds timeout, const Engine::Interrupt& interrupt) {
  check_open();
  ask(n);
  wait_for({.what = "fetch_add",
            .done = [this] { return has_answer(); },
            .awaited = [] { return std::vector{Awaited{kHome, "the answer of @"}}; },
            .if_none_is_missing = "the answer has arrived, call again"},
           timeout, interrupt);
  return take();
}

void SharedCounter::ask(std::uint64_t n) {
  if (is_at_home()) {
    check_alive();
    before_ = value().fetch_add(n);
    return;
  }
  if (!is_taken_) {
    if (n == n_) return;
    throw std::invalid_argument("'" + name() + "': fetch_add(" + std::to_string(n_) +
                                ") was given up before its answer came; expected the same call, got fetch_add(" +
                                std::to_string(n) + ")");
  }
  n_ = n;
  is_taken_ = false;
  const std::uint64_t sequence = ++asked_;
  engine_->exclusively([&] { mailbox().send(kHome, counter::Add{sequence, n}); });
}

std::uint64_t SharedCounter::take() {
  known_ = known();
  is_taken_ = true;
  return before_;
}

// ------------------------------------------------------------------------------------------------ other ranks

void SharedCounter::receive(Rank from, ConstBytes bytes) {
  const auto handlers = Handlers{
      [this](Rank by, const counter::Add& request) { serve(by, request); },
      [this](Rank, const counter::Answer& answer) {
        before_ = answer.before;
        answered_.store(answer.sequence);
      },
      [this](Rank by, const counter::Left&) { has_left_[static_cast<std::size_t>(by)] = true; },
  };
  counter::Messages::deliver(from, bytes, handlers);
}

/// If this process dies between the addition and the entry, no rank gets the numbers.
void SharedCounter::serve(Rank by, const counter::Add& request) {
  const std::uint64_t before = value().fetch_add(request.n);
  Served& entry = served_of_all()[by];
  entry.before.store(before);
  entry.sequence.store(request.sequence);
  mailbox().send(by, counter::Answer{request.sequence, before});
}

// ------------------------------------------------------------------------------------------------ after a death

std::uint64_t SharedCounter::known() const {
  if (is_at_home()) return value().load();
  return is_taken_ || !has_answer() ? known_ : std::max(known_, before_ + n_);
}

std::optional<SharedCounter::Request> SharedCounter::request() const {
  if (is_taken_) return std::nullopt;
  return Request{asked_.load(), n_, has_answer() ? std::optional(before_) : std::nullopt};
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> SharedCounter::served() const {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> all;
  for (std::size_t r = 0; is_at_home() && r < ranks(); ++r) {
    const Served& entry = served_of_all()[r];
    all.emplace_back(entry.sequence.load(), entry.before.load());
  }
  return all;
}

// ------------------------------------------------------------------------------------------------ closing

void SharedCounter::tell_closed() {
  if (!is_at_home()) mailbox().send(kHome, counter::Left{});
}

/// Rank 0 answers until all others have left; another rank waits for its last answer.
bool SharedCounter::finished() const {
  if (!closed() || !has_answer()) return false;
  return rank() != kHome || not_closed().empty();
}

std::vector<Rank> SharedCounter::not_closed() const {
  std::vector<Rank> open;
  if (!closed()) open.push_back(rank());
  for (const Rank r : elsewhere_) {
    if (rank() == kHome && !has_left_[static_cast<std::size_t>(r)]) open.push_back(r);
  }
  return open;
}

}  // namespace pyc
