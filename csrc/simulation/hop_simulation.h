// All ranks of a Hop in one thread and in virtual time: the engine's own protocol code over a simulated network. When a
// rank enters an iteration, the simulation checks the invariants: Theorems 1 and 2 and Table 1, as a matrix of bounds,
// and the sizes of token queues (section 4.2).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/hop/hop.h"
#include "transport/simulated.h"

namespace pyc {

struct HopScript {
  HopOptions options;  ///< elements are float64
  Rank size = 1;
  Rank ranks_per_node = 1;            ///< consecutive ranks; the last node may have fewer
  std::size_t max_iterations = 0;     ///< columns of `work`
  std::vector<Seconds> work;          ///< rank x iteration: computing time
  std::vector<Iteration> iterations;  ///< by rank: number of iterations
  std::vector<Iteration> stops;       ///< by rank: the iteration in which it stops computing; kNeverIteration: never
  std::vector<double> initial;        ///< by rank, of all elements
  std::vector<double> deltas;         ///< by rank, of every iteration
  std::vector<double> bounds;         ///< rank x rank: upper bound on Iter(i) - Iter(j) while no rank has left
  bool leaves = true;                 ///< a rank that has ended closes; otherwise it stays until no event is left
  NetworkCosts network;
  std::uint64_t delivery_seed = 0;
  std::uint64_t max_events = 0;
};

struct HopHistory {
  /// An event of a rank, with the first element of its parameters at that time, and the updates that it has reduced.
  struct Entry {
    enum class What : std::uint8_t { kEntered, kRenewed, kStepped };
    What what;
    Rank rank;
    Iteration iteration;  ///< kRenewed: of the updates reduced before a jump
    Seconds time;
    double value;
    std::vector<HopUpdate> received;
  };
  std::vector<Entry> entries;
  std::vector<Iteration> iterations;  ///< by rank, at the end
  std::vector<HopStatistics> ranks;
  std::uint64_t events = 0;
  std::string stuck;      ///< ranks that have neither ended nor stopped
  std::string open;       ///< ranks on which it is open after all have left
  std::string violation;  ///< the first one
};

HopHistory simulate_hop(const HopScript& script);

}  // namespace pyc
