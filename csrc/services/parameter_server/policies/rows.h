// Functions of a table's rows, and the two kinds of updates that most policies make.
#pragma once

#include <algorithm>
#include <cstdint>

#include "services/parameter_server/policies/policy.h"

namespace pyc::server {

inline bool is_present(const WorkerRow& row) { return row.presence == Presence::kPresent; }

template <class Holds>
bool all_present(Table table, Holds holds) {
  return std::all_of(table.workers.begin(), table.workers.end(),
                     [&](const WorkerRow& row) { return !is_present(row) || holds(row); });
}

inline bool any_present(Table table) { return std::any_of(table.workers.begin(), table.workers.end(), is_present); }

inline std::uint64_t gathered(Table table) {
  std::uint64_t all = 0;
  for (const WorkerRow& row : table.workers) all += row.gathered;
  return all;
}

inline Verdict discarded() { return {.use = false}; }

/// An update by one gradient, which is not counted in `gathered`.
inline Verdict update_by(Table table, Worker worker, double weight) {
  for (WorkerRow& row : table.workers) row.weight = 0;
  table.workers[worker].weight = weight;
  return {.update = true};
}

/// Sets the weights for the mean over workers of the mean of each worker's gathered gradients.
inline void weigh_means(Table table) {
  const auto has_gathered = [](const WorkerRow& row) { return row.gathered > 0; };
  const auto workers = std::count_if(table.workers.begin(), table.workers.end(), has_gathered);
  for (WorkerRow& row : table.workers) {
    row.weight = row.gathered > 0 ? 1 / (static_cast<double>(workers) * static_cast<double>(row.gathered)) : 0;
  }
}

inline void clear_gathered(Table table) {
  for (WorkerRow& row : table.workers) row.gathered = 0;
}

/// Called when a worker's presence has changed. Once it is back, gradients on weights from before its absence are
/// discarded, because they may be as old as the absence was long; unless there are no newer weights. Gradients on
/// weights that it has pulled since then count.
inline void note_presence(Table table, Worker worker) {
  WorkerRow& row = table.workers[worker];
  row.oldest = is_present(row) ? std::min(row.oldest, table.server.version) : table.server.version + 1;
}

inline bool is_from_before_return(Table table, Worker worker, Version version) {
  return version < table.workers[worker].oldest;
}

/// Predictions are in whole nanoseconds, so that equal sums compare equal.
inline std::int64_t nanoseconds(Seconds time) {
  return static_cast<std::int64_t>(time * 1e9 + (time < 0 ? -0.5 : 0.5));
}

/// Requires a known interval. At least 1 ns, and short enough for sums of many.
inline std::int64_t interval_ns(const WorkerRow& row) {
  constexpr Seconds kLongest = 1e6;
  return std::max<std::int64_t>(nanoseconds(std::min(row.interval, kLongest)), 1);
}

}  // namespace pyc::server
