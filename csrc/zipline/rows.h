// The timestamps of n workers, a row for each: the sets S^p of ElasticBSP (section 4.1). Rows may differ in length.
//
// A timestamp is std::int64_t (milliseconds) or double (seconds), as everywhere in this layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pyc::zipline {

/// A view of rows that lie one after the other. At least one row, and none is empty: check_rows.
template <class Time>
struct Rows {
  std::span<const Time> points;
  std::span<const std::int64_t> ends;  // of each row in `points`; the last is its size

  std::size_t size() const { return ends.size(); }
  std::span<const Time> operator[](std::size_t worker) const {
    const std::size_t begin = worker == 0 ? 0 : static_cast<std::size_t>(ends[worker - 1]);
    return points.subspan(begin, static_cast<std::size_t>(ends[worker]) - begin);
  }
};

/// Throws std::invalid_argument, which names the row, unless it has timestamps, all finite and each later than the one
/// before. They are smaller than 2^62, or half of the largest double, so that differences can be computed.
template <class Time>
void check_row(std::size_t worker, std::span<const Time> row);

/// The same for every row; there must be one.
template <class Time>
void check_rows(const Rows<Time>& rows);

/// The iteration of the latest point of an increasing row that is not after `time`; the first point is not.
template <class Time>
std::size_t latest_until(std::span<const Time> row, Time time);

}  // namespace pyc::zipline
