#include "zipline/rows.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace pyc::zipline {
namespace {

template <class Time>
std::string text_of(Time time) {
  if constexpr (std::is_floating_point_v<Time>) {
    if (std::isnan(time)) return "nan";
  }
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, time).ptr};
}

[[noreturn]] void refuse(std::size_t worker, const std::string& what) {
  throw std::invalid_argument("row " + std::to_string(worker) + ": " + what);
}

/// Bound on the size of a timestamp. The difference of two timestamps is less than the largest number.
template <class Time>
constexpr Time kBound =
    std::is_floating_point_v<Time> ? std::numeric_limits<Time>::max() / 2 : static_cast<Time>(std::int64_t{1} << 62);

template <class Time>
bool in_bounds(Time time) {
  return -kBound<Time> < time && time < kBound<Time>;  // false for a NaN
}

}  // namespace

template <class Time>
void check_row(std::size_t worker, std::span<const Time> row) {
  if (row.empty()) refuse(worker, "expected timestamps, got none");
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (!in_bounds(row[i])) {
      refuse(worker, "expected timestamps between -" + text_of(kBound<Time>) + " and " + text_of(kBound<Time>) +
                         ", got " + text_of(row[i]) + " at index " + std::to_string(i));
    }
    if (i > 0 && row[i] <= row[i - 1]) {
      refuse(worker, "expected increasing timestamps, got " + text_of(row[i]) + " after " + text_of(row[i - 1]) +
                         " at index " + std::to_string(i));
    }
  }
}

template <class Time>
void check_rows(const Rows<Time>& rows) {
  if (rows.size() == 0) throw std::invalid_argument("expected at least one row, got none");
  if (rows.points.size() >= std::numeric_limits<std::uint32_t>::max()) {
    throw std::invalid_argument("expected fewer than 2^32 - 1 timestamps, got " + std::to_string(rows.points.size()));
  }
  for (std::size_t worker = 0; worker < rows.size(); ++worker) check_row(worker, rows[worker]);
}

template <class Time>
std::size_t latest_until(std::span<const Time> row, Time time) {
  return static_cast<std::size_t>(std::upper_bound(row.begin(), row.end(), time) - row.begin()) - 1;
}

template void check_row(std::size_t worker, std::span<const std::int64_t> row);
template void check_row(std::size_t worker, std::span<const double> row);
template void check_rows(const Rows<std::int64_t>& rows);
template void check_rows(const Rows<double>& rows);
template std::size_t latest_until(std::span<const std::int64_t> row, std::int64_t time);
template std::size_t latest_until(std::span<const double> row, double time);

}  // namespace pyc::zipline
