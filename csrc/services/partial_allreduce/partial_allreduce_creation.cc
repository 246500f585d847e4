// Creation of a partial allreduce: the agreement of its ranks, and the memory that they allocate together.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/checked.h"
#include "core/error.h"
#include "services/common/creation.h"
#include "services/common/node_memory.h"
#include "services/common/staging.h"
#include "services/common/tags.h"
#include "services/partial_allreduce/leader.h"
#include "services/partial_allreduce/partial_allreduce.h"

namespace pyc {
namespace {

PartialAllreduceOptions normalized(PartialAllreduceOptions options) {
  // `Full` waits for every rank in every round.
  if (options.policy.kind == Policy::Kind::kFull) options.max_staleness = 0;
  // A device reduces the whole array at once.
  if (options.on_device) {
    const std::size_t width = size_of(elements_of(options.type, options.op).accumulator);
    options.segment_bytes = std::max<std::size_t>(1, checked_product(options.count, width));
  }
  return options;
}

/// Bytes per piece of the joint sum; 0 if ranks do not join. Each rank has a piece to begin with, and one more for
/// later ranks.
std::size_t piece_bytes(const PartialAllreduceOptions& options, std::size_t local_ranks, std::size_t bytes) {
  if (options.on_device || local_ranks == 1 || !options.max_staleness || bytes < 2 * kLeastPiece) return 0;
  return std::clamp(round_up(bytes / (2 * local_ranks), kLeastPiece), kLeastPiece, kSegmentBytes);
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
          // The record of the next round may be written while a rank dies, and must not replace the newest one.
          .records = sums ? options.history + 1 : (options.recoverable ? 2 : 1),
          .keeps_totals = sums,
          .max_staleness = options.max_staleness,
          .track_members = options.track_members,
          .segment_bytes = options.segment_bytes,
          .block_bytes = options.on_device ? options.segment_bytes : kBlockBytes,
          .piece_bytes = piece_bytes(options, ranks.size(), options.count * size_of(elements.accumulator)),
          .posts = options.policy.kind == Policy::Kind::kFull && nodes.count() == 1 && ranks.size() > 1 && is_small &&
                   !options.on_device && !options.recoverable,
          .on_device = options.on_device,
          .recoverable = options.recoverable};
}

std::shared_ptr<Board> board_of(const PartialAllreduceOptions& options, const Nodes& nodes, Rank rank,
                                const std::shared_ptr<SharedMemory>& shared) {
  const auto local = static_cast<Rank>(nodes.local_rank_of(rank));
  return std::make_shared<Board>(shared, shape_of(options, nodes, rank), local, local == 0);
}

/// On a device: two results that the application or its streams read, and two while the next one is computed.
constexpr std::size_t kResultsHeld = 4;

}  // namespace

std::size_t PartialAllreduce::bytes_of_board(const Options& options, const Nodes& nodes, Rank rank) {
  return Board::bytes(shape_of(normalized(options), nodes, rank));
}

std::shared_ptr<PartialAllreduce> PartialAllreduce::create(std::shared_ptr<Engine> engine, ReductionMemory& memory,
                                                           Options options, const Nodes& nodes, Seconds timeout,
                                                           const Engine::Interrupt& interrupt,
                                                           const OpenDevice& open_device) {
  Engine& e = *engine;
  options.on_device = open_device != nullptr;
  options = normalized(std::move(options));
  // An overflow on any node must throw on all ranks, so that no rank waits for the others.
  for (const Rank leader : nodes.leaders()) bytes_of_board(options, nodes, leader);
  const BoardShape shape = shape_of(options, nodes, e.rank());
  const std::size_t board_bytes = round_up(Board::bytes(shape), BoardMemory::kLine);
  const std::size_t seat_bytes = open_device ? ArenaSeats::bytes(shape.local_ranks()) : 0;
  // The engine learns of the collective only after all ranks have succeeded.
  std::shared_ptr<PartialAllreduce> made;
  std::optional<PartialAllreducePlan> plan;
  const auto prepare = [&](const std::shared_ptr<SharedMemory>& shared) {
    if (!open_device) {
      made.reset(new PartialAllreduce(e, memory, options, nodes, shared));
      plan = made->plan();
      return;
    }
    const std::shared_ptr<std::byte> seats(shared, shared->data() + board_bytes);
    const std::shared_ptr<Executor> executor = open_device();
    auto handover = std::make_unique<DeviceHandover>(*executor, options.count * size_of(options.type));
    auto device = std::make_unique<DeviceBuffers>(executor, shape, nodes.local_rank_of(e.rank()), seats);
    DeviceMemory& own = device->memory();
    made.reset(new PartialAllreduce(e, own, options, nodes, shared, std::move(device), std::move(handover)));
    made->results_.reserve(kResultsHeld);
    plan = made->plan();
    if (!plan) return;
    const std::size_t runs = kRunsInFlight + 1;  // and one that is armed
    made->staging_ = std::make_unique<Staging>(*executor, &own, shape.buffer_bytes(), runs, plan->pieces);
  };
  const std::string what = "the board of '" + options.name + "'";
  share_memory(e, nodes, board_bytes + seat_bytes, what, prepare, timeout, interrupt);
  if (open_device) map_together(e, what, *made->device_, timeout, interrupt);
  return enroll(std::move(engine), std::move(made), std::move(plan));
}

std::shared_ptr<PartialAllreduce> PartialAllreduce::join(std::shared_ptr<Engine> engine, ReductionMemory& memory,
                                                         Options options, const Nodes& nodes,
                                                         std::shared_ptr<SharedMemory> shared) {
  std::shared_ptr<PartialAllreduce> made(
      new PartialAllreduce(*engine, memory, normalized(std::move(options)), nodes, std::move(shared)));
  std::optional<PartialAllreducePlan> plan = made->plan();
  return enroll(std::move(engine), std::move(made), std::move(plan));
}

/// The leader's plan. May call Python, so not under the engine's lock.
std::optional<PartialAllreducePlan> PartialAllreduce::plan() const {
  const Rank rank = engine_->rank();
  if (!nodes_.is_leader(rank)) return std::nullopt;
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
    m.leader_ = std::make_unique<Leader>(e, m.memory_, m.options_, m.nodes_, *m.board_, m.inspector_, std::move(*plan),
                                         id, m.staging_.get());
    m.leader_->arm();
  });
  m.track_ = e.recorder().track_of(m.id_);
  return enrolled;
}

PartialAllreduce::PartialAllreduce(Engine& engine, ReductionMemory& memory, Options options, const Nodes& nodes,
                                   std::shared_ptr<SharedMemory> shared, std::unique_ptr<DeviceBuffers> device,
                                   std::unique_ptr<DeviceHandover> handover)
    : engine_(&engine),
      memory_(memory),
      device_(std::move(device)),
      handover_(std::move(handover)),
      options_(std::move(options)),
      nodes_(nodes),
      elements_(elements_of(options_.type, options_.op)),
      board_(board_of(options_, nodes_, engine.rank(), shared)),
      inspector_(engine, *this, nodes_, board_),
      wait_(engine, board_, inspector_, nodes_.is_leader(engine.rank())),
      results_(memory, board_, options_.history),
      absences_(engine.size()),
      local_(engine, memory, options_.policy, *board_) {
  const Lock lock(board_->mutex());
  board_->ranks().own().process = ProcessId::own();
  board_->ranks().own().called = engine.transport().now();
}

PartialAllreduce::~PartialAllreduce() = default;

const Schedule* PartialAllreduce::schedule() const { return leader_ ? &leader_->schedule() : nullptr; }

}  // namespace pyc
