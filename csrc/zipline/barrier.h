// The result of the algorithms: the time of the next barrier, and the last iteration of each worker before it.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "zipline/rows.h"

namespace pyc::zipline {

/// Z* of Problem 1 (ElasticBSP, section 4.1): t_sync = max(Z*), d = max(Z*) - min(Z*).
template <class Time>
struct Barrier {
  Time t_sync;
  Time d;
  std::vector<std::int64_t> iterations;  // by worker: the index of its point in Z*
};

/// The barrier of a window. Z* has the latest point of each worker in it, like Z of ZipLine.
template <class Time>
Barrier<Time> barrier_at(const Rows<Time>& rows, Time start, Time end) {
  Barrier<Time> result{end, end - start, std::vector<std::int64_t>(rows.size())};
  for (std::size_t worker = 0; worker < rows.size(); ++worker) {
    result.iterations[worker] = static_cast<std::int64_t>(latest_until(rows[worker], end));
  }
  return result;
}

/// The shortest window so far. Among equal windows it keeps the first, so a scan of the timeline from left to right
/// finds the earliest (Corollary 1).
template <class Time>
class ShortestWindow {
 public:
  void consider(Time start, Time end) {
    if (end - start >= d_) return;
    d_ = end - start;
    start_ = start;
    end_ = end;
  }

  Barrier<Time> barrier(const Rows<Time>& rows) const { return barrier_at(rows, start_, end_); }

 private:
  Time d_ = std::numeric_limits<Time>::max();
  Time start_ = 0, end_ = 0;
};

}  // namespace pyc::zipline
