// All ranks of a Hop in one thread and in virtual time, on the engine's own protocol code over a simulated network.
// What must hold at every instant is checked whenever a rank enters an iteration: Theorems 1 and 2 and Table 1, as a
// matrix of bounds, and the sizes of token queues (section 4.2).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/hop/hop.h"
#include "transport/simulated.h"

namespace pyc {

struct HopScript {
  HopOptions options;  ///< of elements of float64
  Rank size = 1;
  Rank ranks_per_node = 1;            ///< consecutive ranks; the last node may have fewer
  std::size_t max_iterations = 0;     ///< columns of `work`
  std::vector<Seconds> work;          ///< rank x iteration: what computing takes
  std::vector<Iteration> iterations;  ///< by rank: then it has ended
  std::vector<Iteration> stops;       ///< by rank: the iteration in whose computing it stops for ever; kNeverIteration
  std::vector<double> initial;        ///< by rank, of all elements
  std::vector<double> deltas;         ///< by rank, of every iteration
  std::vector<double> bounds;         ///< rank x rank: Iter(i) - Iter(j) is at most this, while no rank has left
  bool leaves = true;                 ///< a rank that has ended closes; else it stays until nothing moves any more
  NetworkCosts network;
  std::uint64_t delivery_seed = 0;
  std::uint64_t max_events = 0;
};

struct HopHistory {
  /// What a rank has done: the first element of its parameters then, and what it has reduced.
  struct Entry {
    enum class What : std::uint8_t { kEntered, kRenewed, kStepped };
    What what;
    Rank rank;
    Iteration iteration;  ///< kRenewed: of the updates that it has reduced before a jump
    Seconds time;
    double value;
    std::vector<HopUpdate> received;
  };
  std::vector<Entry> entries;
  std::vector<Iteration> iterations;  ///< by rank, in the end
  std::vector<HopStatistics> ranks;
  std::uint64_t events = 0;
  std::string stuck;      ///< empty, or who has neither ended nor stopped
  std::string open;       ///< empty, or who has not forgotten it after all have left
  std::string violation;  ///< empty, or the first
};

HopHistory simulate_hop(const HopScript& script);

}  // namespace pyc
