#include "services/neighbor_averaging/neighborhood_edges.h"

#include <algorithm>
#include <utility>

#include "algorithms/neighbor_exchange.h"
#include "schedule/builder.h"

namespace pyc {

NeighborhoodEdges::NeighborhoodEdges(Engine& engine, Memory& memory, std::uint32_t collective, std::size_t bytes,
                                     const std::vector<Rank>& neighbors)
    : engine_(engine),
      memory_(memory),
      collective_(collective),
      mailbox_(engine, collective),
      giving_(plan(kGiver, bytes)),
      taking_(plan(kTaker, bytes)) {
  for (const Rank rank : neighbors) {
    Edge& made = edges_[rank];
    made.giving_peers = {engine.rank(), rank};
    made.taking_peers = {rank, engine.rank()};
    made.giving = make_run(giving_, made.giving_peers);
    made.taking = make_run(taking_, made.taking_peers);
  }
}

NeighborhoodEdges::Plan NeighborhoodEdges::plan(Rank rank, std::size_t bytes) {
  ScheduleBuilder s(rank, 2);
  const Slice values = s.buffer(bytes, "values");
  const OpId release = s.trigger("release");
  s.gate(release);
  neighbor_exchange(s, values);
  s.ungate();
  return {std::move(s).build(), values, release};
}

std::unique_ptr<Run> NeighborhoodEdges::make_run(const Plan& plan, const std::vector<Rank>& peers) {
  const RunContext context{.schedule = plan.schedule,
                           .peers = peers,
                           .members = 1,
                           .memory = memory_,
                           .transport = engine_.transport(),
                           .open_transfers = engine_.open_transfers(),
                           .elements = {DataType::kUint8, DataType::kUint8},  // bytes, nothing is reduced
                           .op = ReduceOp::kSum,
                           .element_bytes = 1,
                           .collective = collective_,
                           .track_members = false,
                           .trace = engine_.trace()};
  auto run = std::make_unique<Run>(context, engine_.reserve_run(), std::vector{plan.values.buffer}, [](Run&, OpId) {});
  engine_.set_run(*run);
  return run;
}

void NeighborhoodEdges::start(Run& run, const Plan& plan, std::uint64_t step, std::byte* values, bool present) {
  run.arm(step);
  run.bind(plan.values.buffer, values);
  run.presence().assign(plan.schedule.blocks_of(plan.values), {.contributors = present ? 1U : 0U}, {});
  run.fire(plan.release);
  run.pump();
}

// ------------------------------------------------------------------------------------------------ taking

void NeighborhoodEdges::take(Rank from, std::uint64_t step, std::byte* into) {
  Edge& e = edge(from);
  e.absent = e.left <= step;
  if (e.absent) return;
  if (e.is_taking && !e.taking->retired()) throw InternalError("a neighbor's step is taken before the one before it");
  e.is_taking = true;
  start(*e.taking, taking_, step, into, false);
  mailbox_.send(from, neighborhood::Ask{step});
}

Input NeighborhoodEdges::input(Rank from) const {
  const Edge& e = edge(from);
  if (e.absent) return Input::kAbsent;
  if (!e.taking->retired()) return Input::kAwaited;
  const std::uint32_t block = taking_.schedule.blocks_of(taking_.values).first;
  return e.taking->presence().at(block).present() ? Input::kPresent : Input::kAbsent;
}

// ------------------------------------------------------------------------------------------------ giving

bool NeighborhoodEdges::give(std::uint64_t begun, std::uint64_t left,
                             const std::function<std::byte*(std::uint64_t)>& values) {
  bool moved = false;
  for (auto& [rank, e] : edges_) {
    moved = settle(e) || moved;
    if (e.is_giving || e.asked == e.given) continue;
    const std::uint64_t step = e.asked - 1;
    if (step >= begun && step < left) continue;
    e.is_giving = true;
    start(*e.giving, giving_, step, step < begun ? values(step) : nullptr, step < begun);
    moved = true;
    settle(e);
  }
  return moved;
}

bool NeighborhoodEdges::settle(Edge& e) {
  if (!e.is_giving || !e.giving->retired()) return false;
  e.is_giving = false;
  e.given = e.giving->round() + 1;
  return true;
}

bool NeighborhoodEdges::has_given(Rank to, std::uint64_t step) const {
  const Edge& e = edge(to);
  return e.given > step || e.left <= step;
}

bool NeighborhoodEdges::has_begun(Rank rank, std::uint64_t step) const {
  const Edge& e = edge(rank);
  return e.asked > step || (e.left != NeighborhoodBoard::kNever && e.left > step);
}

// ------------------------------------------------------------------------------------------------ the end

void NeighborhoodEdges::tell_left(std::uint64_t steps) const {
  for (const auto& [rank, e] : edges_) mailbox_.send(rank, neighborhood::Left{steps});
}

void NeighborhoodEdges::tell_done() const {
  for (const auto& [rank, e] : edges_) mailbox_.send(rank, neighborhood::Done{});
}

bool NeighborhoodEdges::finished() const {
  return std::all_of(edges_.begin(), edges_.end(), [](const auto& entry) {
    const Edge& e = entry.second;
    return e.done && !e.is_giving && e.asked == e.given && (!e.is_taking || e.taking->retired());
  });
}

}  // namespace pyc
