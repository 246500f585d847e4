// The distance between workers, in pushes, for SSP and DSSP.
//
// A worker that returns from an absence would hold back all others until it had made up for its missed pushes, or be
// far ahead of workers that returned earlier. It is therefore counted as level with the slowest other worker: its row's
// `extra` is the difference, modulo 2^64.
#pragma once

#include <algorithm>

#include "services/parameter_server/policies/rows.h"

namespace pyc::server {

inline Clock progress(const WorkerRow& row) { return row.clock + row.extra; }

inline Clock least_progress(Table table, Worker except) {
  Clock least = kNoLimit;
  for (Worker w = 0; w < table.workers.size(); ++w) {
    if (w != except && is_present(table.workers[w])) least = std::min(least, progress(table.workers[w]));
  }
  return least;
}

/// The number of pushes by which a worker is ahead of the slowest other one.
inline Clock lead(Table table, Worker worker) {
  const Clock own = progress(table.workers[worker]);
  return own - std::min(own, least_progress(table, worker));
}

inline void join_slowest(Table table, Worker worker) {
  const Clock least = least_progress(table, worker);
  if (least != kNoLimit) table.workers[worker].extra = least - table.workers[worker].clock;
}

/// Workers that were further behind have returned from an absence.
inline void level(Table table, Clock bound) {
  Clock newest = 0;
  for (const WorkerRow& row : table.workers) newest = std::max(newest, row.clock);
  const Clock least = newest - std::min(newest, bound + 1);
  for (WorkerRow& row : table.workers) row.extra = least - std::min(least, row.clock);
}

/// Whether a waiting worker is more than `bound` pushes ahead of `worker`.
inline bool is_too_slow(Table table, Worker worker, Clock bound) {
  const WorkerRow& row = table.workers[worker];
  return is_present(row) && std::any_of(table.workers.begin(), table.workers.end(), [&](const WorkerRow& other) {
           return is_present(other) && other.waits != 0 && progress(other) > progress(row) + bound;
         });
}

}  // namespace pyc::server
