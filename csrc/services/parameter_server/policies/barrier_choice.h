// The choice of ElasticBSP's barrier from the predicted times of pushes.
#pragma once

#include <cstdint>
#include <vector>

#include "services/parameter_server/options.h"
#include "zipline/barrier.h"
#include "zipline/rows.h"

namespace pyc::server {

/// In nanoseconds.
using Prediction = zipline::Rows<std::int64_t>;
using ChosenBarrier = zipline::Barrier<std::int64_t>;

/// The barrier of least waiting (Problem 1); the earliest of several, if the solver is exact.
ChosenBarrier least_waiting(const Prediction& rows, Solver solver);

/// Ours: the barrier of least waiting per time, d / (t_sync - begun). The superstep began `elapsed` before time 0 of
/// the rows. ZipLine minimizes only the waiting: to save 1 ms, it prefers BSP's barrier to one of a superstep twice as
/// long.
ChosenBarrier least_waiting_per_time(const Prediction& rows, std::int64_t elapsed);

}  // namespace pyc::server
