// How long plans take in virtual time: as in a simulation of the whole protocol (simulation.h) in which all ranks
// contribute at once, but with nothing of a rank beside its plan. So it serves large plans. That both take the same
// time is tested (tests/plan/test_cost.py).
#pragma once

#include <functional>
#include <string>

#include "schedule/schedule.h"
#include "transport/simulated.h"

namespace pyc {

struct PlanTimeOptions {
  std::string algorithm;
  std::string activation;  ///< empty: all ranks are active, and only the allreduce is timed
  Rank size = 1;
  std::size_t count = 1;     ///< elements of the plans
  double element_bytes = 0;  ///< of each, at which messages and reductions are charged
  NetworkCosts network;      ///< without jitter
  Seconds reduce_per_byte = 0;
  /// Of a plan without activation in which every rank does the same as rank 0 at the same time: its messages are taken
  /// for those that it receives, the n-th for the n-th, and no other rank is looked at.
  bool one_for_all = false;
};

/// Seconds until the last rank has its result.
Seconds time_of_plans(const PlanTimeOptions& options);

}  // namespace pyc
