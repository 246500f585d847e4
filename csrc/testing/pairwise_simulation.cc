#include "testing/pairwise_simulation.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>

namespace pyc {
namespace {

constexpr Seconds kSettling = 1000;  // longer than any average takes

class PairwiseSimulation {
 public:
  explicit PairwiseSimulation(const PairwiseScript& script);
  PairwiseHistory run();

 private:
  struct Application {
    std::shared_ptr<Engine> engine;
    std::shared_ptr<PairwiseAveraging> averaging;
    std::size_t steps = 0;
    bool ended = false;
    Seconds alarm = Collective::kNever;
  };

  void work(Rank rank);
  void step(Rank rank);
  void drive(Rank rank);
  void settle();
  bool all_ended() const;

  const PairwiseScript& script_;
  const Nodes nodes_;
  SimulatedNetwork network_;
  std::vector<Application> applications_;
  std::vector<double> delta_;
  bool settles_ = false;
  PairwiseHistory history_;
};

PairwiseSimulation::PairwiseSimulation(const PairwiseScript& script)
    : script_(script),
      nodes_(Nodes::of_size(script.size, script.ranks_per_node)),
      network_(script.size, script.network, script.delivery_seed),
      applications_(static_cast<std::size_t>(script.size)) {
  std::shared_ptr<SharedMemory> shared;
  for (std::size_t e = 0; e < script.count; ++e) {
    delta_.push_back(script.applies_zero ? 0 : static_cast<double>(std::uint64_t{1} << (e % 8)));
  }
  for (Rank r = 0; r < script.size; ++r) {
    Application& a = applications_[static_cast<std::size_t>(r)];
    PairwiseOptions options;
    options.name = "simulated";
    options.count = script.count;
    options.type = DataType::kFloat64;
    options.segment_bytes = script.segment_bytes;
    options.neighbors = script.neighbors[static_cast<std::size_t>(r)];
    options.initiates = script.initiates[static_cast<std::size_t>(r)];
    options.random = script.random;
    options.seed = script.seed;
    options.per_step = script.per_step;
    options.period = script.period;
    options.acceleration = script.acceleration;
    a.engine = std::make_shared<Engine>(network_.endpoint(r), Engine::Options{.progress = Progress::kCaller});
    const std::vector<double> initial(script.count, script.initial[static_cast<std::size_t>(r)]);
    a.averaging = PairwiseAveraging::join(a.engine, host_memory(), std::move(options),
                                          reinterpret_cast<const std::byte*>(initial.data()), nodes_, shared);
  }
}

PairwiseHistory PairwiseSimulation::run() {
  for (Rank r = 0; r < script_.size; ++r) work(r);
  Rank woken = kNoRank;
  while (network_.step(woken)) {
    if (woken != kNoRank) drive(woken);
    if (!settles_ && all_ended()) settle();
    if (script_.max_events > 0 && ++history_.events > script_.max_events) break;
  }
  std::vector<Rank> open;
  for (Rank r = 0; r < script_.size; ++r) {
    Application& a = applications_[static_cast<std::size_t>(r)];
    if (!a.ended || !a.engine->open_collectives().empty()) open.push_back(r);
  }
  if (!open.empty()) history_.stuck = "not ended: " + list_ranks(open);
  history_.seconds = network_.now();
  return std::move(history_);
}

void PairwiseSimulation::work(Rank rank) {
  Application& a = applications_[static_cast<std::size_t>(rank)];
  const auto r = static_cast<std::size_t>(rank);
  if (a.steps < script_.steps[r]) {
    network_.at(network_.now() + script_.step_time[r], [this, rank] { step(rank); });
    return;
  }
  a.ended = true;
  if (script_.leaves[r]) a.averaging->abort();
  network_.at(network_.now(), [this, rank] { drive(rank); });
}

void PairwiseSimulation::step(Rank rank) {
  Application& a = applications_[static_cast<std::size_t>(rank)];
  a.averaging->apply(reinterpret_cast<const std::byte*>(delta_.data()), {});
  ++a.steps;
  drive(rank);
  work(rank);
}

bool PairwiseSimulation::all_ended() const {
  return std::all_of(applications_.begin(), applications_.end(), [](const Application& a) { return a.ended; });
}

/// No rank applies steps anymore. All leave, and pending averages end.
void PairwiseSimulation::settle() {
  settles_ = true;
  for (Rank r = 0; r < script_.size; ++r) {
    network_.at(network_.now() + script_.drain, [this, r] {
      applications_[static_cast<std::size_t>(r)].averaging->abort();
      drive(r);
    });
  }
  const std::size_t count = script_.count;
  network_.at(network_.now() + script_.drain + kSettling, [this, count] {
    history_.models.resize(applications_.size() * count);
    for (std::size_t r = 0; r < applications_.size(); ++r) {
      applications_[r].averaging->peek_kept(reinterpret_cast<std::byte*>(history_.models.data() + r * count));
      history_.ranks.push_back(applications_[r].averaging->statistics());
    }
  });
}

/// Drives one rank. Neighbors on its node take no part in its averages.
void PairwiseSimulation::drive(Rank rank) {
  Application& a = applications_[static_cast<std::size_t>(rank)];
  while (a.engine->advance()) continue;
  a.engine->check();
  const Seconds deadline = std::max(a.engine->deadline(), network_.now());
  if (deadline >= Collective::kNever || deadline == a.alarm) return;
  a.alarm = deadline;
  network_.at(deadline, [this, rank, deadline] {
    Seconds& alarm = applications_[static_cast<std::size_t>(rank)].alarm;
    if (alarm == deadline) alarm = Collective::kNever;  // otherwise it has been set again
    drive(rank);
  });
}

}  // namespace

PairwiseHistory simulate_pairwise(const PairwiseScript& script) {
  const auto size = static_cast<std::size_t>(script.size);
  if (script.size < 1 || script.ranks_per_node < 1 || script.count < 1) {
    throw std::invalid_argument("simulate_pairwise: size, ranks_per_node and count must be at least 1");
  }
  for (const std::size_t entries : {script.neighbors.size(), script.initiates.size(), script.steps.size(),
                                    script.step_time.size(), script.leaves.size(), script.initial.size()}) {
    if (entries != size) throw std::invalid_argument("simulate_pairwise: every list needs one entry per rank");
  }
  return PairwiseSimulation(script).run();
}

}  // namespace pyc
