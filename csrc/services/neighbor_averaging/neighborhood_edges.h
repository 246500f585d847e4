// The edges of a rank to neighbors on other nodes, and the transfers of their values.
//
// The taker posts its receive and then asks. The giver sends once it is asked and has begun the step, so it never sends
// unwanted values: a rank that has left asks for nothing. A giver that has left before the step answers without values.
// Thus every receive is matched, and none is canceled.
//
// Under the engine's progress lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/transfer.h"
#include "services/neighbor_averaging/neighborhood_board.h"
#include "services/neighbor_averaging/neighborhood_messages.h"

namespace pyc {

/// The state of an in-neighbor in a step.
enum class Input : std::uint8_t { kAwaited, kPresent, kAbsent };

class NeighborhoodEdges {
 public:
  /// Uses the tags of `collective`. `bytes`: length of a neighbor's values.
  NeighborhoodEdges(Engine& engine, std::uint32_t collective, std::size_t bytes, const std::vector<Rank>& neighbors);

  bool empty() const { return edges_.empty(); }

  // ---- taking, one step after the other

  void take(Rank from, std::uint64_t step, std::byte* into);
  /// For the step taken last.
  Input input(Rank from) const;

  // ---- giving

  /// Gives requested values. This rank has begun `begun` steps and leaves after `left`; `values(step)` is their place.
  /// Returns whether anything changed.
  bool give(std::uint64_t begun, std::uint64_t left, const std::function<std::byte*(std::uint64_t)>& values);
  /// Whether a neighbor has received the values of a step, or takes no part in it.
  bool has_given(Rank to, std::uint64_t step) const;
  /// Whether a neighbor is known to take part in the step.
  bool has_begun(Rank rank, std::uint64_t step) const;
  bool has_left(Rank rank, std::uint64_t step) const { return edge(rank).left <= step; }

  void tell_left(std::uint64_t steps) const;
  void tell_done() const;
  /// No neighbor asks again, and nothing is in flight.
  bool finished() const;

  // Messages from other ranks.
  void asked(Rank by, std::uint64_t step) { edge(by).asked = step + 1; }
  void left(Rank by, std::uint64_t steps) { edge(by).left = steps; }
  void done(Rank by) { edge(by).done = true; }

 private:
  struct Edge {
    Edge(Engine& engine, std::uint32_t collective, std::size_t bytes, Rank neighbor)
        : giving(engine, collective, neighbor, true, bytes), taking(engine, collective, neighbor, false, bytes) {}

    Transfer giving, taking;
    bool is_giving = false;
    bool is_taking = false;
    std::uint64_t asked = 0;  // steps, including the newest request
    std::uint64_t given = 0;
    std::uint64_t left = NeighborhoodBoard::kNever;
    bool done = false;
    bool absent = false;  // takes no part in the step taken last
  };

  bool settle(Edge& edge);
  Edge& edge(Rank rank) { return edges_.at(rank); }
  const Edge& edge(Rank rank) const { return edges_.at(rank); }

  const neighborhood::Messages mailbox_;
  std::unordered_map<Rank, Edge> edges_;
};

}  // namespace pyc
