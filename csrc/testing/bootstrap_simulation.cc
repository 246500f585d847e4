#include "testing/bootstrap_simulation.h"

#include <algorithm>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>

#include "core/error.h"
#include "core/nodes.h"
#include "engine/message.h"

namespace pyc {
namespace {

/// The collective of stray messages, which no rank creates.
constexpr std::uint32_t kStray = 1;

class BootstrapSimulation {
 public:
  explicit BootstrapSimulation(const BootstrapScript& script);
  BootstrapOutcome run();

 private:
  struct Application {
    std::unique_ptr<Engine> engine;
    std::vector<Rank> node;
    std::size_t called = 0;
    bool is_handed = false;  // waits for the text that is handed down before the comparison
    bool is_in_call = false;
    bool closing = false;
  };

  Application& at(Rank rank) { return applications_[static_cast<std::size_t>(rank)]; }
  BootstrapOutcome::PerRank& outcome(Rank rank) { return outcome_.ranks[static_cast<std::size_t>(rank)]; }
  void pause(Rank rank);
  void lose_patience(Rank rank);
  void give_up(Rank rank);
  void call(Rank rank);
  void compare(Rank rank);
  void close(Rank rank);
  void drive(Rank rank);
  bool go_on(Rank rank);

  const BootstrapScript& script_;
  std::mt19937_64 random_;
  SimulatedNetwork network_;
  std::vector<Application> applications_;
  std::vector<std::size_t> come_;  // ranks in each comparison
  BootstrapOutcome outcome_;
};

BootstrapSimulation::BootstrapSimulation(const BootstrapScript& script)
    : script_(script),
      random_(script.seed),
      network_(script.size, script.network, script.seed),
      applications_(static_cast<std::size_t>(script.size)),
      come_(script.texts.size()) {
  outcome_.ranks.resize(applications_.size());
  for (Rank r = 0; r < script.size; ++r) {
    at(r).engine = std::make_unique<Engine>(network_.endpoint(r), Engine::Options{.progress = Progress::kCaller});
    at(r).node = Nodes::of_size(script.size, script.ranks_per_node).neighbours(r);
  }
}

BootstrapOutcome BootstrapSimulation::run() {
  for (Rank r = 0; r < script_.size; ++r) pause(r);
  Rank woken = kNoRank;
  while (network_.step(woken)) {
    if (woken == kNoRank) continue;
    auto& counts = outcome(woken);
    ++(at(woken).closing ? counts.received_to_close : counts.received);
    if (!script_.driven_in_calls || at(woken).is_in_call || at(woken).closing) drive(woken);
  }
  return std::move(outcome_);
}

void BootstrapSimulation::pause(Rank rank) {
  const Seconds duration = std::uniform_real_distribution<Seconds>(0, script_.pause)(random_);
  network_.at(network_.now() + duration, [this, rank] { call(rank); });
}

void BootstrapSimulation::lose_patience(Rank rank) {
  if (script_.patience == 0) return;
  const Seconds duration = std::uniform_real_distribution<Seconds>(0, script_.patience)(random_);
  network_.at(network_.now() + duration, [this, rank, call = at(rank).called] {
    if (!at(rank).is_in_call || at(rank).called != call) return;
    at(rank).engine->start_withdrawal();
    drive(rank);
    give_up(rank);
  });
}

/// If the root does not answer in time.
void BootstrapSimulation::give_up(Rank rank) {
  if (script_.answer_time == 0) return;
  network_.at(network_.now() + script_.answer_time, [this, rank, call = at(rank).called] {
    if (!at(rank).is_in_call || at(rank).called != call) return;
    at(rank).engine->start_giving_up();
    drive(rank);
    at(rank).is_in_call = false;
    outcome(rank).withdrew = true;
  });
}

void BootstrapSimulation::call(Rank rank) {
  Application& a = at(rank);
  if (a.called == script_.texts.size()) return close(rank);
  a.is_in_call = true;
  a.is_handed = script_.ranks_per_node > 1;
  if (a.is_handed) {
    a.engine->start_hand_down(script_.texts[a.called][static_cast<std::size_t>(rank)], a.node);
  } else {
    compare(rank);
  }
  lose_patience(rank);
  drive(rank);
}

void BootstrapSimulation::compare(Rank rank) {
  Application& a = at(rank);
  ++come_[a.called];
  a.engine->start_comparison(script_.texts[a.called][static_cast<std::size_t>(rank)]);
}

void BootstrapSimulation::close(Rank rank) {
  Application& a = at(rank);
  auto& counts = outcome(rank);
  counts.sent = a.engine->transport().active_sent();
  if (!script_.closes) return;
  const std::size_t strays = script_.strays / applications_.size() +
                             (static_cast<std::size_t>(rank) < script_.strays % applications_.size() ? 1 : 0);
  for (std::size_t i = 0; i < strays; ++i) {
    const auto to = std::uniform_int_distribution<Rank>(0, script_.size - 1)(random_);
    const MessageHeader stray{kStray, 0};
    a.engine->transport().send_active(to, std::as_bytes(std::span(&stray, 1)));
  }
  a.closing = true;
  a.engine->start_close();
  counts.sent_to_close = strays;  // subtracted later
  drive(rank);
}

/// Processes all consequences of an event at this rank.
void BootstrapSimulation::drive(Rank rank) {
  Application& a = at(rank);
  if (!a.engine) throw InternalError("a message came to a rank that has closed");
  do {
    while (a.engine->advance()) {
    }
    a.engine->check();
  } while (go_on(rank));
}

/// True if the rank has begun another call at once.
bool BootstrapSimulation::go_on(Rank rank) {
  Application& a = at(rank);
  auto& result = outcome(rank);
  if (a.closing) {
    if (!a.engine->may_close()) return false;
    result.sent_to_close = a.engine->transport().active_sent() - result.sent - result.sent_to_close;
    result.closed = true;
    a.engine.reset();  // from now on a message for it is an error
    return false;
  }
  if (!a.is_in_call) return false;
  if (a.engine->withdrawn()) {
    result.withdrew = true;
    a.is_in_call = false;
    return false;
  }
  if (a.is_handed) {
    const auto text = a.engine->finished_hand_down();
    if (!text) return false;
    if (*text != script_.texts[a.called][static_cast<std::size_t>(a.node.front())]) {
      throw InternalError("another text was handed down than was given");
    }
    a.is_handed = false;
    compare(rank);
    return true;
  }
  auto texts = a.engine->finished_comparison();
  if (!texts) return false;
  outcome_.premature = outcome_.premature || come_[a.called] < applications_.size();
  result.comparisons.push_back(std::move(*texts));
  ++a.called;
  a.is_in_call = false;
  pause(rank);
  return false;
}

}  // namespace

BootstrapOutcome simulate_bootstrap(const BootstrapScript& script) {
  if (script.size < 1 || script.ranks_per_node < 1) {
    throw std::invalid_argument("simulate_bootstrap: size and ranks_per_node must be at least 1");
  }
  for (const auto& texts : script.texts) {
    if (texts.size() != static_cast<std::size_t>(script.size)) {
      throw std::invalid_argument("simulate_bootstrap: a comparison needs one text per rank");
    }
  }
  return BootstrapSimulation(script).run();
}

}  // namespace pyc
