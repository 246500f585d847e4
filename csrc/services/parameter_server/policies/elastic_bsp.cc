// Elastic bulk synchronous parallel (sections 3 and 4, Fig. 5).
//
// Idea: workers push as often as they can, as in ASP, and occasionally wait for each other, at a time that makes them
// wait little.
//
// Rule: an arriving gradient is an update. After a barrier, the server monitors until each worker has pushed twice. It
// then predicts the next R pushes of each worker, one interval apart, and ZipLine picks one push per worker so that the
// picked pushes span the shortest time. They are the barrier. Each worker continues until its picked push. When all
// have made theirs, all continue together, and the server monitors again.
//
// That is the paper's rule, predict="superstep". With predict="push" (ours), if a worker's interval changes before the
// barrier, its remaining pushes are predicted from the new interval, and the barrier is chosen again among the pushes
// of the first prediction. The barrier is thus at most R pushes of each worker away. A waiting worker has made its last
// push. With constant speeds both rules solve once per superstep. In virtual time, 8 workers with lognormal times
// (deviation 30 %) make 1.34 times the iterations of BSP, and 1.07 times by the paper's rule; with cloud-like
// times 1.29 and 1.19.
//
// Each solution is complete and takes some us (zipline_linear, 8 workers, R = 15). An incremental one
// (zipline/incremental.h) needs a tree in one process, but processes share the state of policies as plain data. With
// more than kMostToSolveAgain points, the first solution stays.
//
// A worker that vanishes during monitoring would leave the others without a barrier. It is therefore missing too,
// although no worker waits. A worker that returns before a barrier waits for it after its push.
//
// State: the server's phase is 1 after a prediction. A row's `limit` is its clock at the next barrier. `extra` is its
// clock at the last barrier; after a prediction, at its last predicted push.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "services/parameter_server/policies/barrier_choice.h"
#include "services/parameter_server/policies/base.h"
#include "services/parameter_server/policies/policies.h"

namespace pyc::server {
namespace {

constexpr Clock kMonitored = 2;  // pushes of each worker
constexpr std::uint64_t kLongestLookahead = 1 << 16;
constexpr std::uint64_t kMostToSolveAgain = 1 << 14;  // points; takes about 0.3 ms
constexpr double kChange = 1e-3;                      // of an interval; a smaller change is ignored

class ElasticBsp final : public ImmediatePolicy {
 public:
  explicit ElasticBsp(const SyncOptions& options)
      : ImmediatePolicy(options),
        lookahead_(options.lookahead),
        solver_(options.solver),
        predicts_each_push_(options.predicts_each_push),
        weighs_length_(options.weigh_length) {
    if (lookahead_ < 1 || lookahead_ > kLongestLookahead) {
      throw std::invalid_argument("ElasticBSP: expected a lookahead from 1 to 65536");
    }
  }

  bool may_go(Table table, Worker worker) const override {
    const WorkerRow& row = table.workers[worker];
    return !is_present(row) || !has_arrived(row);
  }
  void on_resume(Table table) const override {
    for (WorkerRow& row : table.workers) row.extra = row.clock;
  }
  bool is_awaited(Table table, Worker worker) const override {
    const WorkerRow& row = table.workers[worker];
    return is_present(row) && (is_predicted(table) ? !has_arrived(row) : !is_monitored(row));
  }

 private:
  static bool is_predicted(Table table) { return table.server.phase != 0; }
  static bool has_arrived(const WorkerRow& row) { return row.clock >= row.limit; }
  static bool is_monitored(const WorkerRow& row) { return row.clock - row.extra >= kMonitored; }

  bool has_waiting(Table table) const override {
    if (is_predicted(table)) return ImmediatePolicy::has_waiting(table);
    return std::any_of(table.workers.begin(), table.workers.end(),
                       [](const WorkerRow& row) { return is_present(row) && is_monitored(row); });
  }

  void after_push(Table table, Worker worker, Seconds now) const override {
    const WorkerRow& row = table.workers[worker];
    if (predicts_each_push_ && is_predicted(table) &&
        std::abs(row.interval - row.predicted) > kChange * row.predicted &&
        lookahead_ * table.workers.size() <= kMostToSolveAgain) {
      choose_barrier(table, now);
    }
    go_on(table, now);
  }
  void after_presence(Table table, Worker worker, Seconds now) const override {
    WorkerRow& row = table.workers[worker];
    if (is_present(row)) {
      row.limit = is_predicted(table) ? row.clock + 1 : kNoLimit;
      row.extra = is_predicted(table) ? row.limit : row.clock;
    }
    go_on(table, now);
  }

  void go_on(Table table, Seconds now) const {
    if (!any_present(table)) return;
    if (is_predicted(table)) {
      if (all_present(table, has_arrived)) end_superstep(table, now);
    } else if (all_present(table, is_monitored)) {
      predict(table, now);
    }
  }

  static void end_superstep(Table table, Seconds now) {
    ++table.server.superstep;
    table.server.begun = now;
    table.server.barrier = kUnknown;
    table.server.phase = 0;
    for (WorkerRow& row : table.workers) {
      row.extra = row.clock;
      row.limit = kNoLimit;
    }
  }

  void predict(Table table, Seconds now) const {
    for (WorkerRow& row : table.workers) row.extra = row.clock + lookahead_;
    table.server.phase = 1;
    choose_barrier(table, now);
  }

  /// Chooses among the predicted pushes of present workers. A waiting worker has made its last push.
  void choose_barrier(Table table, Seconds now) const {
    std::vector<std::int64_t> points, ends;
    for (WorkerRow& row : table.workers) {
      if (!is_present(row)) continue;
      append_predicted(row, now, points);
      ends.push_back(static_cast<std::int64_t>(points.size()));
    }
    const Prediction rows{points, ends};
    const ChosenBarrier chosen = weighs_length_ ? least_waiting_per_time(rows, nanoseconds(now - table.server.begun))
                                                : least_waiting(rows, solver_);
    auto iteration = chosen.iterations.begin();
    for (WorkerRow& row : table.workers) {
      if (!is_present(row)) continue;
      const auto pushes = static_cast<Clock>(*iteration++) + 1;
      if (!has_arrived(row)) row.limit = row.clock + pushes;
    }
    table.server.barrier = now + static_cast<double>(chosen.t_sync) * 1e-9;
  }

  static void append_predicted(WorkerRow& row, Seconds now, std::vector<std::int64_t>& points) {
    row.predicted = row.interval;
    std::int64_t last = nanoseconds(row.last_push - now);
    if (has_arrived(row)) {
      points.push_back(last);
      return;
    }
    const std::int64_t interval = interval_ns(row);
    last = std::max(last, -interval);  // a late push is expected now
    for (Clock left = row.extra - row.clock; left > 0; --left) points.push_back(last += interval);
  }

  const std::uint64_t lookahead_;
  const Solver solver_;
  const bool predicts_each_push_;
  const bool weighs_length_;
};

}  // namespace

MadePolicy make_elastic_bsp(const SyncOptions& options) { return std::make_unique<ElasticBsp>(options); }

}  // namespace pyc::server
