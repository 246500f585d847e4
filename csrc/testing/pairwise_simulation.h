// All ranks of a pairwise averaging in one thread and in virtual time, on the engine's own protocol code over a
// simulated network: for histories of any number of ranks, of which every message order is drawn by a seed.
//
// Applications are scripted: each applies an integer delta after each of its steps. Models are float64, so that sums
// over ranks can be compared exactly as long as averages are few enough for dyadic numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/neighbor_averaging/pairwise_averaging.h"
#include "transport/simulated.h"

namespace pyc {

struct PairwiseScript {
  Rank size = 1;
  Rank ranks_per_node = 1;                   ///< consecutive ranks; the last node may have fewer
  std::vector<std::vector<Rank>> neighbors;  ///< by rank
  std::vector<bool> initiates;               ///< by rank
  std::vector<std::size_t> steps;            ///< by rank
  std::vector<Seconds> step_time;            ///< by rank
  std::vector<bool> leaves;     ///< by rank: closes after its last step; else it stays until all have ended
  std::vector<double> initial;  ///< by rank, of all elements
  std::size_t count = 1;
  std::size_t segment_bytes = 0;
  bool random = true;
  bool per_step = true;
  Seconds period = 0;  ///< else
  bool applies_zero = false;
  std::uint64_t seed = 0;
  std::optional<Acceleration> acceleration;
  Seconds drain = 0;  ///< after the last step, before all leave
  NetworkCosts network;
  std::uint64_t delivery_seed = 0;
  std::uint64_t max_events = 0;
};

struct PairwiseHistory {
  std::vector<double> models;  ///< rank after rank
  std::vector<PairwiseStatistics> ranks;
  Seconds seconds = 0;
  std::uint64_t events = 0;
  std::string stuck;  ///< empty, or who has not ended
};

/// Each step adds 2^e to element e.
PairwiseHistory simulate_pairwise(const PairwiseScript& script);

}  // namespace pyc
