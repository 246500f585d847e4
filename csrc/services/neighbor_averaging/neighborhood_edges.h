// The edges of one rank to neighbors on other nodes, whose values move in runs of the engine.
//
// The taker asks, and posts its receive first; the giver sends when it is asked and has begun the step. So nobody sends
// what nobody takes: a rank that has left asks for nothing. A giver that has left before the step answers by a message
// without values. Every receive is hence matched, and nothing is ever cancelled.
//
// Under the engine's progress lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/run.h"
#include "memory/memory.h"
#include "schedule/schedule.h"
#include "services/neighbor_averaging/neighborhood_board.h"
#include "services/neighbor_averaging/neighborhood_messages.h"

namespace pyc {

/// How an in-neighbor stands to a step.
enum class Input : std::uint8_t { kAwaited, kPresent, kAbsent };

class NeighborhoodEdges {
 public:
  /// Of `engine`'s rank, with the tags of `collective`, to `neighbors`. `bytes`: of what one gives another.
  NeighborhoodEdges(Engine& engine, Memory& memory, std::uint32_t collective, std::size_t bytes,
                    const std::vector<Rank>& neighbors);

  bool has(Rank rank) const { return edges_.contains(rank); }
  bool empty() const { return edges_.empty(); }

  // ---- taking: one step after the other

  /// Takes a neighbor's values of a step to `into`, `bytes` of them.
  void take(Rank from, std::uint64_t step, std::byte* into);
  /// Of the step that was taken last.
  Input input(Rank from) const;

  // ---- giving

  /// Gives what it is asked for, of a rank that has begun so many steps and leaves after so many. `values(step)`: where
  /// they are. Whether that was anything.
  bool give(std::uint64_t begun, std::uint64_t left, const std::function<std::byte*(std::uint64_t)>& values);
  /// Whether a neighbor has been given the values of a step, or takes no part in it.
  bool has_given(Rank to, std::uint64_t step) const;
  /// Whether it takes part in the step, as far as is known.
  bool has_begun(Rank rank, std::uint64_t step) const;
  bool has_left(Rank rank, std::uint64_t step) const { return edge(rank).left <= step; }

  void tell_left(std::uint64_t steps) const;
  void tell_done() const;
  /// No neighbor asks for anything any more, and nothing is in flight.
  bool finished() const;

  // What the other ranks have sent.
  void asked(Rank by, std::uint64_t step) { edge(by).asked = step + 1; }
  void left(Rank by, std::uint64_t steps) { edge(by).left = steps; }
  void done(Rank by) { edge(by).done = true; }

 private:
  struct Edge {
    std::vector<Rank> giving_peers, taking_peers;  // by rank of the plan
    std::unique_ptr<Run> giving, taking;
    bool is_giving = false;
    bool is_taking = false;
    std::uint64_t asked = 0;  // steps, the newest asked for included
    std::uint64_t given = 0;
    std::uint64_t left = NeighborhoodBoard::kNever;
    bool done = false;
    bool absent = false;  // in the step that was taken last
  };
  struct Plan {
    Schedule schedule;
    Slice values;
    OpId release;
  };

  static Plan plan(Rank rank, std::size_t bytes);
  std::unique_ptr<Run> make_run(const Plan& plan, const std::vector<Rank>& peers);
  void start(Run& run, const Plan& plan, std::uint64_t step, std::byte* values, bool present);
  bool settle(Edge& edge);
  Edge& edge(Rank rank) { return edges_.at(rank); }
  const Edge& edge(Rank rank) const { return edges_.at(rank); }

  Engine& engine_;
  Memory& memory_;
  const std::uint32_t collective_;
  const neighborhood::Messages mailbox_;
  const Plan giving_, taking_;
  std::unordered_map<Rank, Edge> edges_;
};

}  // namespace pyc
