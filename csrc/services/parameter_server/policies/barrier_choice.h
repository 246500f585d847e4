// Which barrier ElasticBSP imposes, of the times at which workers are predicted to push.
#pragma once

#include <cstdint>
#include <vector>

#include "services/parameter_server/options.h"
#include "zipline/barrier.h"
#include "zipline/rows.h"

namespace pyc::server {

/// Nanoseconds.
using Prediction = zipline::Rows<std::int64_t>;
using ChosenBarrier = zipline::Barrier<std::int64_t>;

/// The barrier of least waiting (Problem 1), the earliest among equals, if the solver is exact.
ChosenBarrier least_waiting(const Prediction& rows, Solver solver);

/// Our own: the barrier of least waiting per time, d / (t_sync - begun). The superstep began `elapsed` before the time
/// 0 of the rows. ZipLine takes the shortest waiting, however early: BSP's, if that is 1 ms shorter than one of a
/// superstep twice as long.
ChosenBarrier least_waiting_per_time(const Prediction& rows, std::int64_t elapsed);

}  // namespace pyc::server
