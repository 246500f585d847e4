#include "services/neighbor_averaging/neighborhood_edges.h"

#include <algorithm>

#include "core/error.h"

namespace pyc {

NeighborhoodEdges::NeighborhoodEdges(Engine& engine, std::uint32_t collective, std::size_t bytes,
                                     const std::vector<Rank>& neighbors)
    : mailbox_(engine, collective) {
  for (const Rank rank : neighbors) edges_.try_emplace(rank, engine, collective, bytes, rank);
}

// ------------------------------------------------------------------------------------------------ taking

void NeighborhoodEdges::take(Rank from, std::uint64_t step, std::byte* into) {
  Edge& e = edge(from);
  e.absent = e.left <= step;
  if (e.absent) return;
  if (e.is_taking && !e.taking.ended()) throw InternalError("a neighbor's step is taken before the one before it");
  e.is_taking = true;
  e.taking.start(step, into);
  mailbox_.send(from, neighborhood::Ask{step});
}

Input NeighborhoodEdges::input(Rank from) const {
  const Edge& e = edge(from);
  if (e.absent) return Input::kAbsent;
  if (!e.taking.ended()) return Input::kAwaited;
  return e.taking.has_received() ? Input::kPresent : Input::kAbsent;
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
    e.giving.start(step, step < begun ? values(step) : nullptr);
    moved = true;
    settle(e);
  }
  return moved;
}

bool NeighborhoodEdges::settle(Edge& e) {
  if (!e.is_giving || !e.giving.ended()) return false;
  e.is_giving = false;
  e.given = e.giving.number() + 1;
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
    return e.done && !e.is_giving && e.asked == e.given && (!e.is_taking || e.taking.ended());
  });
}

}  // namespace pyc
