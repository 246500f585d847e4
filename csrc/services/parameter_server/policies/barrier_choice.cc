#include "services/parameter_server/policies/barrier_choice.h"

#include <stdexcept>

#include "zipline/algorithms.h"
#include "zipline/linear_scan.h"
#include "zipline/windows.h"

namespace pyc::server {

namespace {

/// Repeating windows have the same waiting per time except for rounding; the earliest of them is wanted.
constexpr double kBetter = 1 - 1e-6;

}  // namespace

ChosenBarrier least_waiting(const Prediction& rows, Solver solver) {
  switch (solver) {
    case Solver::kLinear:
      return zipline::zipline_linear(rows);
    case Solver::kZipline:
      return zipline::zipline(rows);
    case Solver::kZiplineOpt:
      return zipline::zipline_opt(rows);
    case Solver::kZiplineOptBs:
      return zipline::zipline_opt_bs(rows);
    case Solver::kGridScan:
      return zipline::grid_scan(rows);
    case Solver::kFullGridScan:
      return zipline::full_grid_scan(rows);
  }
  throw std::invalid_argument("an unknown algorithm for ElasticBSP's barrier");
}

ChosenBarrier least_waiting_per_time(const Prediction& rows, std::int64_t elapsed) {
  double least = 0;
  zipline::Window<std::int64_t> best{0, -1};
  zipline::scan_windows(rows, [&](std::int64_t start, std::int64_t end) {
    const double ratio = static_cast<double>(end - start) / static_cast<double>(end + elapsed);
    if (best.end >= best.start && ratio > least * kBetter) return;
    least = ratio;
    best = {start, end};
  });
  return zipline::barrier_at(rows, best.start, best.end);
}

}  // namespace pyc::server
