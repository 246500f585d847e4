// How far workers are apart, in pushes: of SSP and DSSP.
//
// A worker that comes back after an absence would hold all others back until it had made up for all pushes that it has
// missed; or be far ahead of those who came back before it. So it is taken for as far as the slowest of the others is
// then: its row's `extra` is the difference, modulo 2^64.
#pragma once

#include <algorithm>

#include "services/parameter_server/policies/rows.h"

namespace pyc::server {

inline Clock progress(const WorkerRow& row) { return row.clock + row.extra; }

/// Of workers that are present, besides `except`; kNoLimit if there is none.
inline Clock least_progress(Table table, Worker except) {
  Clock least = kNoLimit;
  for (Worker w = 0; w < table.workers.size(); ++w) {
    if (w != except && is_present(table.workers[w])) least = std::min(least, progress(table.workers[w]));
  }
  return least;
}

/// By how many pushes a worker is ahead of the slowest.
inline Clock lead(Table table, Worker worker) {
  const Clock own = progress(table.workers[worker]);
  return own - std::min(own, least_progress(table, worker));
}

/// To be called of a worker that comes back.
inline void join_slowest(Table table, Worker worker) {
  const Clock least = least_progress(table, worker);
  if (least != kNoLimit) table.workers[worker].extra = least - table.workers[worker].clock;
}

/// Whether somebody who waits is more than `bound` pushes ahead of a worker.
inline bool is_too_slow(Table table, Worker worker, Clock bound) {
  const WorkerRow& row = table.workers[worker];
  return is_present(row) && std::any_of(table.workers.begin(), table.workers.end(), [&](const WorkerRow& other) {
           return is_present(other) && other.waits != 0 && progress(other) > progress(row) + bound;
         });
}

}  // namespace pyc::server
