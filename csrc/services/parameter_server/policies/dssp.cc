// Dynamic stale synchronous parallel (Zhao et al. 2019a, arXiv 1908.11848; section 7).
//
// Idea: SSP with a threshold that is chosen at run time between `low` and `high`. A worker that is further ahead than
// `low` would wait for the slowest. A few more iterations may end just when the slowest pushes, so that it waits less.
//
// Rule: within `low` a worker continues. Beyond it, it is granted r >= 0 more iterations, which keep it within `high`.
// r minimizes its wait for the next push of the slowest worker; among equals the smallest r is taken. Both are
// predicted from their latest intervals. A new grant is considered whenever the slowest worker has pushed.
//
// The controller is ours, after the summary in section 7: a threshold between two bounds, from the latest intervals of
// the fastest and the slowest worker, so that the fastest waits least. Grants never add up to more than `high`, and
// every worker that would wait gets a grant, not only the fastest.
//
// State: a row's `limit` is the number of its pushes at which its grant ends.
#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include "services/parameter_server/policies/base.h"
#include "services/parameter_server/policies/policies.h"
#include "services/parameter_server/policies/progress.h"

namespace pyc::server {
namespace {

/// The horizon of predictions: waiting times of more iterations repeat approximately.
constexpr Clock kMostGranted = 256;

class Dssp final : public ImmediatePolicy {
 public:
  explicit Dssp(const SyncOptions& options) : ImmediatePolicy(options), low_(options.low), high_(options.high) {
    if (high_ < low_) throw std::invalid_argument("DSSP: expected bounds lo <= hi");
  }

  void on_resume(Table table) const override { level(table, high_); }
  bool may_go(Table table, Worker worker) const override {
    return lead(table, worker) <= low_ || has_grant(table.workers[worker]);
  }
  bool is_awaited(Table table, Worker worker) const override { return is_too_slow(table, worker, low_); }

 private:
  static bool has_grant(const WorkerRow& row) { return row.limit != kNoLimit && row.clock < row.limit; }

  void after_push(Table table, Worker worker, Seconds now) const override {
    grant(table, worker, now);
    const bool was_slowest = lead(table, worker) == 0;
    if (was_slowest) grant_waiting(table, now);
  }
  void after_presence(Table table, Worker worker, Seconds now) const override {
    if (is_present(table.workers[worker])) join_slowest(table, worker);
    grant_waiting(table, now);
  }

  void grant_waiting(Table table, Seconds now) const {
    for (Worker w = 0; w < table.workers.size(); ++w) {
      if (table.workers[w].waits != 0) grant(table, w, now);
    }
  }

  void grant(Table table, Worker worker, Seconds now) const {
    WorkerRow& row = table.workers[worker];
    const Clock ahead = lead(table, worker);
    if (ahead <= low_ || ahead > high_ || has_grant(row)) return;
    const Clock most = std::min(high_ - ahead + 1, kMostGranted);  // the last granted iteration begins `high` ahead
    row.limit = row.clock + best_grant(row, slowest(table, worker), most, now);
  }

  static const WorkerRow& slowest(Table table, Worker except) {
    const Clock least = least_progress(table, except);
    return *std::find_if(table.workers.begin(), table.workers.end(),
                         [&](const WorkerRow& row) { return is_present(row) && progress(row) == least; });
  }

  static Clock best_grant(const WorkerRow& own, const WorkerRow& slow, Clock most, Seconds now) {
    if (own.interval == kUnknown || slow.interval == kUnknown) return 0;
    const std::int64_t since_push = nanoseconds(now - slow.last_push);
    Clock best = 0;
    std::int64_t shortest = INT64_MAX;
    for (Clock r = 0; r <= most; ++r) {
      const std::int64_t end = since_push + static_cast<std::int64_t>(r) * interval_ns(own);
      const std::int64_t pushes = std::max<std::int64_t>((end + interval_ns(slow) - 1) / interval_ns(slow), 1);
      const std::int64_t waiting = pushes * interval_ns(slow) - end;
      if (waiting < shortest) {
        shortest = waiting;
        best = r;
      }
    }
    return best;
  }

  const Clock low_, high_;
};

}  // namespace

MadePolicy make_dssp(const SyncOptions& options) { return std::make_unique<Dssp>(options); }

}  // namespace pyc::server
