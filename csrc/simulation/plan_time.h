// The duration of plans in virtual time. It equals the time of a simulation of the whole protocol (simulation.h) in
// which all ranks contribute at once, but needs only the plans, and so handles large ones. tests/plan/test_cost.py
// compares both times.
#pragma once

#include <functional>
#include <string>

#include "schedule/schedule.h"
#include "transport/simulated.h"

namespace pyc {

struct PlanTimeOptions {
  std::string algorithm;
  std::string activation;  ///< empty: every rank is active, and only the allreduce is timed
  Rank size = 1;
  std::size_t count = 1;
  double element_bytes = 0;  ///< bytes per element, for the costs of messages and reductions
  NetworkCosts network;      ///< without jitter
  Seconds reduce_per_byte = 0;
  /// For plans without activation in which every rank does the same as rank 0 at the same time. Only rank 0 is
  /// simulated, and the n-th message that it sends stands for the n-th that it receives.
  bool one_for_all = false;
};

/// Seconds until the last rank has its result.
Seconds time_of_plans(const PlanTimeOptions& options);

}  // namespace pyc
