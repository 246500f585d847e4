#include "zipline/timeline.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace pyc::zipline {
namespace {

template <class Time>
class Buckets {
 public:
  Buckets(const Rows<Time>& rows, std::size_t count) : first_(rows[0].front()) {
    Time last = rows[0].back();
    for (std::size_t worker = 1; worker < rows.size(); ++worker) {
      first_ = std::min(first_, rows[worker].front());
      last = std::max(last, rows[worker].back());
    }
    per_time_ = static_cast<double>(count - 1) / static_cast<double>(last - first_);
    if (!std::isfinite(per_time_)) per_time_ = 0;  // all points at the same time, or almost
  }

  /// Never smaller for a later point.
  std::size_t operator()(Time time) const {
    return static_cast<std::size_t>(static_cast<double>(time - first_) * per_time_);
  }

 private:
  Time first_;
  double per_time_;
};

/// With more points in a bucket, insertion_sort is too slow.
constexpr std::ptrdiff_t kCrowded = 16;

/// Fast if few points are out of order. Points of equal time keep their order, which is the order of workers.
template <class Time>
void insertion_sort(std::vector<Event<Time>>& events) {
  for (std::size_t i = 1; i < events.size(); ++i) {
    const Event<Time> e = events[i];
    std::size_t place = i;
    for (; place > 0 && e.time < events[place - 1].time; --place) events[place] = events[place - 1];
    if (place < i) events[place] = e;
  }
}

}  // namespace

template <class Time>
std::vector<Event<Time>> timeline(const Rows<Time>& rows) {
  const std::size_t count = rows.points.size();
  const Buckets<Time> bucket_of(rows, count);
  std::vector<std::uint32_t> begins(count + 1);
  for (const Time time : rows.points) ++begins[bucket_of(time) + 1];
  std::partial_sum(begins.begin(), begins.end(), begins.begin());

  std::vector<Event<Time>> events(count);
  for (std::uint32_t worker = 0; worker < rows.size(); ++worker) {
    std::uint32_t iteration = 0;
    for (const Time time : rows[worker]) events[begins[bucket_of(time)]++] = {time, worker, iteration++};
  }

  // Each bucket begins where the previous one ends. Its own begin has become its end.
  auto begin = events.begin();
  for (std::size_t bucket = 0; bucket < count; ++bucket) {
    const auto end = events.begin() + begins[bucket];
    if (end - begin > kCrowded) std::sort(begin, end);
    begin = end;
  }
  insertion_sort(events);
  return events;
}

template std::vector<Event<std::int64_t>> timeline(const Rows<std::int64_t>& rows);
template std::vector<Event<double>> timeline(const Rows<double>& rows);

}  // namespace pyc::zipline
