#include "simulation/hop_simulation.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <stdexcept>
#include <utility>

namespace pyc {
namespace {

class HopSimulation {
 public:
  explicit HopSimulation(const HopScript& script);
  HopHistory run();

 private:
  enum class State : std::uint8_t { kEntering, kComputing, kStepping, kEnded, kStopped };
  struct Application {
    std::shared_ptr<Engine> engine;
    std::vector<double> model, delta;
    std::shared_ptr<Hop> hop;
    State state = State::kEntering;
  };

  Application& at(Rank rank) { return applications_[static_cast<std::size_t>(rank)]; }
  template <class T>
  static const T& of(const std::vector<T>& values, Rank rank) {
    return values[static_cast<std::size_t>(rank)];
  }
  bool is_local(Rank a, Rank b) const { return nodes_.of(a) == nodes_.of(b); }

  void drive(Rank rank);
  void run_events();
  bool poll(Rank rank);
  bool enter(Rank rank);
  bool step(Rank rank);
  void end(Rank rank);
  void note(HopHistory::Entry::What what, Rank rank, Iteration iteration, const std::vector<HopUpdate>& received);
  void check(Rank rank);
  void check_tokens(Rank of, Rank by);
  std::string ranks_where(const std::function<bool(const Application&)>& holds) const;

  const HopScript& script_;
  const Nodes nodes_;
  SimulatedNetwork network_;
  std::vector<Application> applications_;
  bool has_left_ = false;  // a rank has left: gaps to it, and through it, are unbounded
  HopHistory history_;
};

HopSimulation::HopSimulation(const HopScript& script)
    : script_(script),
      nodes_(Nodes::of_size(script.size, script.ranks_per_node)),
      network_(script.size, script.network, script.delivery_seed),
      applications_(static_cast<std::size_t>(script.size)) {
  std::shared_ptr<SharedMemory> shared;
  for (Rank r = 0; r < script.size; ++r) {
    Application& a = at(r);
    a.engine = std::make_shared<Engine>(network_.endpoint(r), Engine::Options{.progress = Progress::kCaller});
    a.model.assign(script.options.count, of(script.initial, r));
    a.delta.assign(script.options.count, of(script.deltas, r));
    a.hop = Hop::join(a.engine, host_memory(), script.options, reinterpret_cast<std::byte*>(a.model.data()), nodes_,
                      shared);
  }
}

HopHistory HopSimulation::run() {
  for (Rank r = 0; r < script_.size; ++r) drive(r);
  run_events();
  history_.stuck =
      ranks_where([](const Application& a) { return a.state != State::kEnded && a.state != State::kStopped; });
  for (const Application& a : applications_) {
    history_.iterations.push_back(a.hop->worker().iteration());
    history_.ranks.push_back(a.hop->worker().statistics());
  }
  for (Application& a : applications_) {
    a.state = State::kEnded;
    a.hop->abort();
  }
  for (Rank r = 0; r < script_.size; ++r) drive(r);
  run_events();
  for (Rank r = 0; r < script_.size; ++r) drive(r);
  history_.open = ranks_where([](const Application& a) { return !a.engine->open_collectives().empty(); });
  return std::move(history_);
}

void HopSimulation::run_events() {
  Rank woken = kNoRank;
  while (network_.step(woken)) {
    if (woken != kNoRank) drive(woken);
    if (script_.max_events > 0 && ++history_.events > script_.max_events) break;
  }
}

/// Drives a rank as far as possible, and then the neighbors on its node that this affects.
void HopSimulation::drive(Rank rank) {
  std::deque<Rank> woken{rank};
  while (!woken.empty()) {
    const Rank r = woken.front();
    woken.pop_front();
    while (at(r).engine->advance()) continue;
    at(r).engine->check();
    if (!poll(r)) continue;
    woken.push_back(r);
    for (const Rank j : script_.options.neighbors_of(r)) {
      if (is_local(r, j)) woken.push_back(j);
    }
  }
}

/// True if the application of the rank has made progress.
bool HopSimulation::poll(Rank rank) {
  switch (at(rank).state) {
    case State::kEntering:
      return enter(rank);
    case State::kStepping:
      return step(rank);
    case State::kComputing:
    case State::kEnded:
    case State::kStopped:
      break;
  }
  return false;
}

bool HopSimulation::enter(Rank rank) {
  Application& a = at(rank);
  if (of(script_.iterations, rank) == 0) {
    end(rank);
    return true;
  }
  const HopWorker& worker = a.hop->worker();
  const std::uint64_t jumps = worker.statistics().jumps;
  const Iteration before = worker.iteration();
  const bool entered = a.hop->try_enter(of(script_.iterations, rank) - 1);
  const Iteration k = worker.iteration();
  if (worker.statistics().jumps > jumps) {
    note(HopHistory::Entry::What::kRenewed, rank, k - 1, worker.received());
  }
  if (k != before || entered) check(rank);
  if (!entered) return k != before;
  note(HopHistory::Entry::What::kEntered, rank, k, {});
  if (of(script_.stops, rank) <= k) {
    a.state = State::kStopped;
    return true;
  }
  a.state = State::kComputing;
  const Seconds work = script_.work[static_cast<std::size_t>(rank) * script_.max_iterations + k];
  network_.at(network_.now() + work, [this, rank] {
    at(rank).state = State::kStepping;
    drive(rank);
  });
  return true;
}

bool HopSimulation::step(Rank rank) {
  Application& a = at(rank);
  const Iteration sent = a.hop->worker().participated();
  if (!a.hop->try_step(reinterpret_cast<const std::byte*>(a.delta.data()))) {
    return a.hop->worker().participated() != sent;
  }
  note(HopHistory::Entry::What::kStepped, rank, a.hop->worker().iteration(), a.hop->worker().received());
  const double value = a.model.front();
  if (!a.hop->try_step(reinterpret_cast<const std::byte*>(a.delta.data())) || a.model.front() != value) {
    history_.violation = "rank " + std::to_string(rank) + ": a step that had ended was done again";
  }
  a.state = State::kEntering;
  if (a.hop->worker().iteration() + 1 >= of(script_.iterations, rank)) end(rank);
  return true;
}

void HopSimulation::end(Rank rank) {
  at(rank).state = State::kEnded;
  if (!script_.leaves) return;
  has_left_ = true;
  at(rank).hop->abort();
}

void HopSimulation::note(HopHistory::Entry::What what, Rank rank, Iteration iteration,
                         const std::vector<HopUpdate>& received) {
  history_.entries.push_back({what, rank, iteration, network_.now(), at(rank).model.front(), received});
}

// ------------------------------------------------------------------------------------------------ at every instant

/// A rank has entered an iteration. It may be too far ahead of another rank, and its token queues have changed.
void HopSimulation::check(Rank rank) {
  if (has_left_ || !history_.violation.empty()) return;
  const Iteration k = at(rank).hop->worker().iteration();
  for (Rank j = 0; j < script_.size; ++j) {
    const double gap = static_cast<double>(k) - static_cast<double>(at(j).hop->worker().iteration());
    const double bound = script_.bounds[static_cast<std::size_t>(rank) * static_cast<std::size_t>(script_.size) +
                                        static_cast<std::size_t>(j)];
    if (gap > bound) {
      history_.violation = "rank " + std::to_string(rank) + " is in iteration " + std::to_string(k) + ", " +
                           std::to_string(gap) + " ahead of rank " + std::to_string(j) + "; the bound is " +
                           std::to_string(bound);
    }
  }
  for (const Rank j : script_.options.out_of(rank)) check_tokens(j, rank);
  for (const Rank j : script_.options.in_of(rank)) check_tokens(rank, j);
}

/// TokenQ(of -> by) has Iter(of) - Iter(by) + max_ig tokens, minus the tokens in flight.
void HopSimulation::check_tokens(Rank of, Rank by) {
  const Iteration there = at(by).hop->tokens_of(of);
  const Iteration expected =
      at(of).hop->worker().iteration() + script_.options.max_ig - at(by).hop->worker().iteration();
  if (is_local(of, by) ? there == expected : there <= expected) return;
  history_.violation = "TokenQ(" + std::to_string(of) + " -> " + std::to_string(by) + ") has " + std::to_string(there) +
                       " tokens; expected " + std::to_string(expected);
}

std::string HopSimulation::ranks_where(const std::function<bool(const Application&)>& holds) const {
  std::vector<Rank> ranks;
  for (Rank r = 0; r < script_.size; ++r) {
    if (holds(applications_[static_cast<std::size_t>(r)])) ranks.push_back(r);
  }
  return ranks.empty() ? std::string() : list_ranks(ranks);
}

}  // namespace

HopHistory simulate_hop(const HopScript& script) {
  const auto size = static_cast<std::size_t>(script.size);
  if (script.size < 1 || script.ranks_per_node < 1 || script.options.count < 1) {
    throw std::invalid_argument("simulate_hop: size, ranks_per_node and count must be at least 1");
  }
  for (const std::size_t entries : {script.options.in.size(), script.options.out.size(), script.iterations.size(),
                                    script.stops.size(), script.initial.size(), script.deltas.size()}) {
    if (entries != size) throw std::invalid_argument("simulate_hop: every list needs one entry per rank");
  }
  const auto is_longer = [&](Iteration iterations) { return iterations > script.max_iterations; };
  if (std::any_of(script.iterations.begin(), script.iterations.end(), is_longer)) {
    throw std::invalid_argument("simulate_hop: no rank may have more than max_iterations");
  }
  if (script.work.size() != size * script.max_iterations || script.bounds.size() != size * size) {
    throw std::invalid_argument("simulate_hop: work is ranks by iterations, bounds ranks by ranks");
  }
  if (script.options.type != DataType::kFloat64) throw std::invalid_argument("simulate_hop: elements are float64");
  return HopSimulation(script).run();
}

}  // namespace pyc
