#include "simulation/simulation.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <stdexcept>

namespace pyc {
namespace {

/// Host memory whose reductions take virtual time.
class TimedMemory final : public ReductionMemory {
 public:
  TimedMemory(SimulatedNetwork& network, Rank rank, Seconds per_byte)
      : network_(network), rank_(rank), per_byte_(per_byte) {}

  BufferPtr allocate(std::size_t bytes) override { return host_memory().allocate(bytes); }
  void release(std::byte* data) noexcept override { host_memory().release(data); }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override { host_memory().copy(to, from, bytes); }
  void load(Elements elements, std::byte* into, const std::byte* from, std::size_t count) override {
    host_memory().load(elements, into, from, count);
  }
  void reduce(Elements elements, ReduceOp op, std::byte* into, const std::byte* from, std::size_t count) override {
    network_.occupy(rank_, per_byte_ * static_cast<double>(count * size_of(elements.accumulator)));
    host_memory().reduce(elements, op, into, from, count);
  }
  void add(Elements elements, std::byte* into, const std::byte* from, std::size_t count, std::size_t divisor) override {
    host_memory().add(elements, into, from, count, divisor);
  }
  void store(Elements elements, std::byte* into, const std::byte* from, std::size_t count,
             std::size_t divisor) override {
    host_memory().store(elements, into, from, count, divisor);
  }
  void fill_identity(Elements elements, ReduceOp op, std::byte* into, std::size_t count) override {
    host_memory().fill_identity(elements, op, into, count);
  }

 private:
  SimulatedNetwork& network_;
  Rank rank_;
  Seconds per_byte_;
};

class Simulation {
 public:
  explicit Simulation(const SimulationOptions& options);
  SimulationResult run();

 private:
  struct Waiting {
    std::shared_ptr<Call> call;
    std::int64_t number;
    Seconds called;
  };
  struct Application {
    std::unique_ptr<TimedMemory> memory;
    std::shared_ptr<Engine> engine;
    std::shared_ptr<PartialAllreduce> collective;
    std::size_t next_call = 0;
    std::deque<Waiting> waiting;
    bool working = false;
    bool ended = false;
    Seconds alarm = Collective::kNever;  // for the engine's deadline
  };

  void work(Rank rank);
  void contribute(Rank rank);
  void drive(Rank rank);
  bool collect(Rank rank);
  void go_on(Rank rank);
  void release_barrier();
  void end(Rank rank);
  void record(Rank rank, const Waiting& waiting);
  std::string stuck();

  const SimulationOptions& options_;
  const Nodes nodes_;
  const std::size_t count_;
  const bool identify_;  // each contribution has a bit of its own
  SimulatedNetwork network_;
  std::vector<Application> applications_;
  std::vector<std::int64_t> values_;
  std::size_t at_barrier_ = 0;
  std::size_t open_ = 0;  // applications that have not ended
  SimulationResult result_;
};

Simulation::Simulation(const SimulationOptions& options)
    : options_(options),
      nodes_(Nodes::of_size(options.size, options.ranks_per_node)),
      count_(options.collective.count == 0 ? static_cast<std::size_t>(options.size) : options.collective.count),
      identify_(options.collective.count == 0),
      network_(options.size, options.network, options.delivery_seed),
      applications_(static_cast<std::size_t>(options.size)),
      values_(count_, identify_ ? 0 : 1),
      open_(applications_.size()) {
  network_.scale_payload(options.payload_factor);
  std::shared_ptr<SharedMemory> shared;  // of the ranks of a node, which are consecutive
  for (Rank r = 0; r < options.size; ++r) {
    Application& a = applications_[static_cast<std::size_t>(r)];
    a.memory = std::make_unique<TimedMemory>(network_, r, options.reduce_per_byte * options.payload_factor);
    a.engine = std::make_shared<Engine>(network_.endpoint(r), Engine::Options{.progress = Progress::kCaller});
    PartialAllreduceOptions collective = options.collective;
    collective.count = count_;
    collective.type = DataType::kInt64;
    if (nodes_.leader(nodes_.of(r)) == r) {
      shared = SharedMemory::create_private(PartialAllreduce::bytes_of_board(collective, nodes_, r));
    }
    a.collective = PartialAllreduce::join(a.engine, *a.memory, std::move(collective), nodes_, shared);
  }
  result_.count = count_;
}

SimulationResult Simulation::run() {
  for (Rank r = 0; r < options_.size; ++r) go_on(r);
  Rank woken = kNoRank;
  while (network_.step(woken)) {
    if (woken != kNoRank) drive(woken);
    if (options_.max_events > 0 && ++result_.events > options_.max_events) {
      result_.deadlock = "no end after " + std::to_string(options_.max_events) + " events: " + stuck();
      break;
    }
  }
  if (result_.deadlock.empty()) result_.deadlock = stuck();
  for (const Application& a : applications_) result_.rounds = std::max(result_.rounds, a.collective->rounds());
  result_.seconds = network_.now();
  result_.messages = network_.messages();
  result_.bytes = network_.bytes();
  return std::move(result_);
}

/// Begins the application's next action, once it waits for nothing and its results are computed.
void Simulation::go_on(Rank rank) {
  Application& a = applications_[static_cast<std::size_t>(rank)];
  const bool more = a.next_call < options_.calls[static_cast<std::size_t>(rank)];
  if (a.working || a.ended || a.waiting.size() > (more ? options_.pipeline : 0)) return;
  if (const Seconds computed = network_.computed(rank); computed > network_.now()) {
    network_.at(computed, [this, rank] { go_on(rank); });
    return;
  }
  if (!more) return end(rank);
  if (!options_.barrier) return work(rank);
  a.working = true;
  ++at_barrier_;
  release_barrier();
}

/// Releases all ranks together once every application that has not ended has reached the barrier.
void Simulation::release_barrier() {
  if (at_barrier_ == 0 || at_barrier_ < open_) return;
  at_barrier_ = 0;
  for (Rank r = 0; r < options_.size; ++r) {
    if (applications_[static_cast<std::size_t>(r)].working) work(r);
  }
}

void Simulation::work(Rank rank) {
  Application& a = applications_[static_cast<std::size_t>(rank)];
  a.working = true;
  const Seconds duration = options_.work[static_cast<std::size_t>(rank) * options_.max_calls + a.next_call];
  network_.at(network_.now() + duration, [this, rank] { contribute(rank); });
}

void Simulation::contribute(Rank rank) {
  Application& a = applications_[static_cast<std::size_t>(rank)];
  a.working = false;
  if (identify_) values_[static_cast<std::size_t>(rank)] = std::int64_t{1} << a.next_call;
  const Seconds called = network_.now();
  auto call = a.collective->contribute(reinterpret_cast<const std::byte*>(values_.data()));
  if (identify_) values_[static_cast<std::size_t>(rank)] = 0;
  a.waiting.push_back({std::move(call), static_cast<std::int64_t>(a.next_call++), called});
  drive(rank);
  go_on(rank);
}

void Simulation::end(Rank rank) {
  Application& a = applications_[static_cast<std::size_t>(rank)];
  using Ending = SimulationOptions::Ending;
  const Ending ending = options_.ending[static_cast<std::size_t>(rank)];
  a.ended = true;
  --open_;
  if (ending == Ending::kFlush) a.waiting.push_back({a.collective->start_flush(-1), -1, network_.now()});
  if (ending == Ending::kClose) a.collective->close();
  drive(rank);
  release_barrier();
}

/// Processes all consequences, on its node, of an event at this rank.
void Simulation::drive(Rank rank) {
  const std::vector<Rank>& ranks = nodes_.ranks(nodes_.of(rank));
  for (bool moved = true; moved;) {
    moved = false;
    for (const Rank r : ranks) {
      Application& a = applications_[static_cast<std::size_t>(r)];
      while (a.engine->advance()) moved = true;
      a.engine->check();
    }
    for (const Rank r : ranks) moved = collect(r) || moved;
  }
  for (const Rank r : ranks) {
    Application& a = applications_[static_cast<std::size_t>(r)];
    const Seconds deadline = a.engine->deadline();
    if (deadline < Collective::kNever && deadline != a.alarm) {
      a.alarm = deadline;
      network_.at(deadline, [this, r] { drive(r); });
    }
  }
}

/// Passes completed calls to the application. True if there were any.
bool Simulation::collect(Rank rank) {
  Application& a = applications_[static_cast<std::size_t>(rank)];
  bool any = false;
  while (!a.waiting.empty() && a.collective->try_finish(*a.waiting.front().call)) {
    record(rank, a.waiting.front());
    const bool flushed = a.waiting.front().call->flush;
    a.waiting.pop_front();
    any = true;
    if (flushed) a.collective->close();
  }
  if (any) go_on(rank);
  return any;
}

void Simulation::record(Rank rank, const Waiting& waiting) {
  const Application& a = applications_[static_cast<std::size_t>(rank)];
  const Seconds done = waiting.call->late ? network_.now() : network_.computed(rank);  // a late call waits for nothing
  result_.calls.push_back({rank, waiting.number, waiting.called, done, waiting.call->late, waiting.call->info});
  if (!options_.record_results) return;
  const auto* values = reinterpret_cast<const std::int64_t*>(a.collective->result().get());
  result_.results.insert(result_.results.end(), values, values + count_);
}

std::string Simulation::stuck() {
  std::vector<Rank> waiting;
  std::vector<Rank> open;
  for (Rank r = 0; r < options_.size; ++r) {
    Application& a = applications_[static_cast<std::size_t>(r)];
    if (!a.ended || !a.waiting.empty()) waiting.push_back(r);
    const bool closes = options_.ending[static_cast<std::size_t>(r)] != SimulationOptions::Ending::kNone;
    if (closes && (!a.engine->open_collectives().empty() || a.engine->transport().in_flight() > 0)) open.push_back(r);
  }
  std::string text;
  if (!waiting.empty()) text += list_ranks(waiting) + " wait for ever; ";
  if (!open.empty()) text += "the collective has not ended on " + list_ranks(open);
  return text;
}

}  // namespace

SimulationResult simulate(const SimulationOptions& options) {
  const auto size = static_cast<std::size_t>(options.size);
  if (options.size < 1 || options.calls.size() != size || options.ending.size() != size ||
      options.work.size() != size * options.max_calls) {
    throw std::invalid_argument("simulate: calls and ending need one entry per rank, work one row per rank");
  }
  if (options.ranks_per_node < 1) throw std::invalid_argument("simulate: ranks_per_node must be at least 1");
  if (options.collective.count == 0 && options.max_calls > 62) {
    throw std::invalid_argument("simulate: contributions are told apart by bits, at most 62 calls per rank");
  }
  return Simulation(options).run();
}

}  // namespace pyc
