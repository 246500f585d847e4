// A partial allreduce until its first call: what its ranks agree on, and what they make together.
#include <algorithm>
#include <utility>

#include "services/common/creation.h"
#include "services/common/node_memory.h"
#include "services/common/tags.h"
#include "services/partial_allreduce/leader.h"
#include "services/partial_allreduce/partial_allreduce.h"

namespace pyc {
namespace {

PartialAllreduceOptions normalized(PartialAllreduceOptions options) {
  // Synchronous means that every rank is waited for in every round.
  if (options.policy.kind == Policy::Kind::kFull) options.max_staleness = 0;
  return options;
}

BoardShape shape_of(const PartialAllreduceOptions& options, const Nodes& nodes, Rank rank) {
  const bool sums = options.missed == PartialAllreduceOptions::Missed::kSum;
  const Elements elements = elements_of(options.type, options.op);
  const std::vector<Rank>& ranks = nodes.ranks(nodes.of(rank));
  const bool is_small = options.count <= kPostedBytes / ranks.size() / size_of(elements.accumulator);
  return {.ranks = ranks,
          .size = nodes.size(),
          .count = options.count,
          .elements = elements,
          .op = options.op,
          .records = sums ? options.history + 1 : 1,
          .keeps_totals = sums,
          .max_staleness = options.max_staleness,
          .track_members = options.track_members,
          .segment_bytes = options.segment_bytes,
          .posts = options.policy.kind == Policy::Kind::kFull && nodes.count() == 1 && ranks.size() > 1 && is_small};
}

std::shared_ptr<Board> board_of(const PartialAllreduceOptions& options, const Nodes& nodes, Rank rank,
                                const std::shared_ptr<SharedMemory>& shared) {
  const auto local = static_cast<Rank>(nodes.local_rank_of(rank));
  return std::make_shared<Board>(shared, shape_of(options, nodes, rank), local, local == 0);
}

/// Where there are other nodes.
bool is_leader(const Nodes& nodes, Rank rank) { return nodes.count() > 1 && nodes.leader(nodes.of(rank)) == rank; }

/// Nothing rings that a grace has ended.
Seconds longest_sleep(const Policy& policy) {
  return policy.grace > 0 ? std::max(policy.grace / 4, 1e-4) : Collective::kNever;
}

}  // namespace

std::size_t PartialAllreduce::bytes_of_board(const Options& options, const Nodes& nodes, Rank rank) {
  return Board::bytes(shape_of(normalized(options), nodes, rank));
}

std::shared_ptr<PartialAllreduce> PartialAllreduce::create(std::shared_ptr<Engine> engine, Memory& memory,
                                                           Options options, const Nodes& nodes, Seconds timeout,
                                                           const Engine::Interrupt& interrupt) {
  Engine& e = *engine;
  // More than can be counted on any node is refused on all ranks alike: nobody is left waiting for the others.
  for (const Rank leader : nodes.leaders()) bytes_of_board(options, nodes, leader);
  const std::size_t bytes = bytes_of_board(options, nodes, e.rank());
  // Nothing is known to the engine before all ranks have said that they can.
  std::shared_ptr<PartialAllreduce> made;
  std::optional<PartialAllreducePlan> plan;
  const auto prepare = [&](const std::shared_ptr<SharedMemory>& shared) {
    made.reset(new PartialAllreduce(e, memory, normalized(options), nodes, shared));
    plan = made->plan();
  };
  share_memory(e, nodes, bytes, "the board of '" + options.name + "'", prepare, timeout, interrupt);
  return enroll(std::move(engine), std::move(made), std::move(plan));
}

std::shared_ptr<PartialAllreduce> PartialAllreduce::join(std::shared_ptr<Engine> engine, Memory& memory,
                                                         Options options, const Nodes& nodes,
                                                         std::shared_ptr<SharedMemory> shared) {
  std::shared_ptr<PartialAllreduce> made(
      new PartialAllreduce(*engine, memory, normalized(std::move(options)), nodes, std::move(shared)));
  std::optional<PartialAllreducePlan> plan = made->plan();
  return enroll(std::move(engine), std::move(made), std::move(plan));
}

/// The leader's; may call Python, hence not under the engine's lock.
std::optional<PartialAllreducePlan> PartialAllreduce::plan() const {
  const Rank rank = engine_->rank();
  if (!is_leader(nodes_, rank)) return std::nullopt;
  PartialAllreducePlan plan = plan_for(options_, nodes_, rank);
  check_tags(plan.schedule, options_.algorithm, engine_->transport().max_tag());
  return plan;
}

std::shared_ptr<PartialAllreduce> PartialAllreduce::enroll(std::shared_ptr<Engine> engine,
                                                           std::shared_ptr<PartialAllreduce> made,
                                                           std::optional<PartialAllreducePlan> plan) {
  Engine& e = *engine;
  PartialAllreduce& m = *made;
  auto enrolled = pyc::enroll(std::move(engine), std::move(made), [&](std::uint32_t id) {
    m.id_ = id;
    m.trace_ = e.trace_of(id);
    m.board_->round().record_in(m.trace_);
    if (!plan) return;
    m.leader_ =
        std::make_unique<Leader>(e, m.memory_, m.options_, m.nodes_, *m.board_, m.inspector_, std::move(*plan), id);
  });
  m.track_ = e.recorder().track_of(m.id_);
  return enrolled;
}

PartialAllreduce::PartialAllreduce(Engine& engine, Memory& memory, Options options, const Nodes& nodes,
                                   std::shared_ptr<SharedMemory> shared)
    : engine_(&engine),
      memory_(memory),
      options_(std::move(options)),
      nodes_(nodes),
      elements_(elements_of(options_.type, options_.op)),
      board_(board_of(options_, nodes_, engine.rank(), shared)),
      inspector_(engine, *this, nodes_, board_),
      wait_(engine, board_, inspector_, is_leader(nodes_, engine.rank()), longest_sleep(options_.policy)),
      results_(memory, board_, options_.history),
      local_(engine, memory, options_.policy, *board_) {
  const Lock lock(board_->mutex());
  board_->ranks().own().process = ProcessId::own();
  board_->ranks().own().called = engine.transport().now();
}

PartialAllreduce::~PartialAllreduce() = default;

const Schedule* PartialAllreduce::schedule() const { return leader_ ? &leader_->schedule() : nullptr; }

}  // namespace pyc
