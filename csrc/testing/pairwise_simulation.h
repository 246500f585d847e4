// All ranks of a pairwise averaging in one thread and in virtual time: the engine's own protocol code over a simulated
// network. A seed draws every message order. Each rank applies an integer delta after each of its steps. Models are
// float64, so that sums over ranks are exact if there are few averages (dyadic numbers).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/neighbor_averaging/pairwise_averaging.h"
#include "transport/simulated.h"

namespace pyc {

struct PairwiseScript {
  Rank size = 1;
  Rank ranks_per_node = 1;  ///< consecutive ranks; the last node may have fewer
  // By rank:
  std::vector<std::vector<Rank>> neighbors;
  std::vector<bool> initiates;
  std::vector<std::size_t> steps;
  std::vector<Seconds> step_time;
  std::vector<bool> leaves;     ///< closes after its last step; otherwise stays until all have ended
  std::vector<double> initial;  ///< of all elements
  std::size_t count = 1;
  std::size_t segment_bytes = 0;
  bool random = true;
  bool per_step = true;
  Seconds period = 0;  ///< if not per_step
  bool applies_zero = false;
  std::uint64_t seed = 0;
  std::optional<Acceleration> acceleration;
  Seconds drain = 0;  ///< after the last step, before all leave
  NetworkCosts network;
  std::uint64_t delivery_seed = 0;
  std::uint64_t max_events = 0;
};

struct PairwiseHistory {
  std::vector<double> models;  ///< in the order of ranks
  std::vector<PairwiseStatistics> ranks;
  Seconds seconds = 0;
  std::uint64_t events = 0;
  std::string stuck;  ///< the ranks that have not ended
};

/// Each step adds 2^e to element e.
PairwiseHistory simulate_pairwise(const PairwiseScript& script);

}  // namespace pyc
