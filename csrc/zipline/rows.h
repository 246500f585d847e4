// The timestamps of n workers, one row per worker: the sets S^p of ElasticBSP (section 4.1). Rows may differ in length.
// In this layer a timestamp is std::int64_t (milliseconds) or double (seconds).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pyc::zipline {

/// A view of consecutive rows. There is at least one row, and none is empty (check_rows).
template <class Time>
struct Rows {
  std::span<const Time> points;
  std::span<const std::int64_t> ends;  // end of each row in `points`; the last is the size of `points`

  std::size_t size() const { return ends.size(); }
  std::span<const Time> operator[](std::size_t worker) const {
    const std::size_t begin = worker == 0 ? 0 : static_cast<std::size_t>(ends[worker - 1]);
    return points.subspan(begin, static_cast<std::size_t>(ends[worker]) - begin);
  }
};

/// Throws std::invalid_argument, which names the row, unless it has timestamps that are finite and increase. They must
/// be smaller than 2^62, or half of the largest double, so that differences can be computed.
template <class Time>
void check_row(std::size_t worker, std::span<const Time> row);

/// The same for every row. There must be at least one.
template <class Time>
void check_rows(const Rows<Time>& rows);

/// The index of the latest point of an increasing row at or before `time`. The first point must not be after `time`.
template <class Time>
std::size_t latest_until(std::span<const Time> row, Time time);

}  // namespace pyc::zipline
