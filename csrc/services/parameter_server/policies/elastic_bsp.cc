// Elastic bulk synchronous parallel (sections 3 and 4, Fig. 5).
//
// Idea: workers push as often as they can, as in ASP, and wait for each other now and then, at a time that is chosen so
// that they wait little.
//
// Rule: each gradient is an update as soon as it comes. After a barrier the server monitors until each worker has
// pushed twice. Then it predicts the next R pushes of each, one interval apart from its last push on, and ZipLine
// chooses one push of each so that the first and the last of them are as close as can be. These are the barrier: each
// worker goes on until it has made that push, and when all have, all go on together, and the server monitors again.
//
// So a barrier comes with the R-th push after the prediction at the latest, of each worker. What is predicted are
// numbers of pushes; a worker whose speed changes makes others wait in this superstep, and is predicted anew in the
// next.
//
// Rejected: solving again at each push (zipline/incremental.h). A barrier that moves with each push has no latest time,
// and the tree of an incremental solution is no plain data that processes could share. The next superstep sees the new
// speeds anyway: "that error will not be carried forward to the next decision" (section 4).
//
// A worker that vanishes while the server monitors would leave all others without a barrier, as in ASP: it is missing
// too, though nobody waits. A worker that comes back before a barrier waits for it after its push.
//
// State: the server's phase, 1 after a prediction; a row's `extra` is its clock at the last barrier, `limit` at the
// next.
#include <algorithm>
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

class ElasticBsp final : public ImmediatePolicy {
 public:
  explicit ElasticBsp(const SyncOptions& options)
      : ImmediatePolicy(options),
        lookahead_(options.lookahead),
        solver_(options.solver),
        weighs_length_(options.weigh_length) {
    if (lookahead_ < 1 || lookahead_ > kLongestLookahead) {
      throw std::invalid_argument("ElasticBSP: expected a lookahead from 1 to 65536");
    }
  }

  bool may_go(Table table, Worker worker) const override {
    const WorkerRow& row = table.workers[worker];
    return !is_present(row) || row.clock < row.limit;
  }
  bool is_awaited(Table table, Worker worker) const override {
    const WorkerRow& row = table.workers[worker];
    return is_present(row) && (is_predicted(table) ? row.clock < row.limit : !is_monitored(row));
  }

 private:
  static bool is_predicted(Table table) { return table.server.phase != 0; }
  static bool is_monitored(const WorkerRow& row) { return row.clock - row.extra >= kMonitored; }

  bool has_waiting(Table table) const override {
    if (is_predicted(table)) return ImmediatePolicy::has_waiting(table);
    return std::any_of(table.workers.begin(), table.workers.end(),
                       [](const WorkerRow& row) { return is_present(row) && is_monitored(row); });
  }

  void after_push(Table table, Worker, Seconds now) const override { go_on(table, now); }
  void after_presence(Table table, Worker worker, Seconds now) const override {
    WorkerRow& row = table.workers[worker];
    if (is_present(row)) {
      row.extra = row.clock;
      row.limit = is_predicted(table) ? row.clock + 1 : kNoLimit;
    }
    go_on(table, now);
  }

  void go_on(Table table, Seconds now) const {
    if (!any_present(table)) return;
    if (is_predicted(table)) {
      if (all_present(table, [](const WorkerRow& row) { return row.clock >= row.limit; })) end_superstep(table, now);
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
    std::vector<std::int64_t> points, ends;
    for (const WorkerRow& row : table.workers) {
      if (!is_present(row)) continue;
      const std::int64_t last = nanoseconds(row.last_push - now), interval = interval_ns(row);
      for (std::uint64_t i = 1; i <= lookahead_; ++i) points.push_back(last + static_cast<std::int64_t>(i) * interval);
      ends.push_back(static_cast<std::int64_t>(points.size()));
    }
    const Prediction rows{points, ends};
    const ChosenBarrier chosen = weighs_length_ ? least_waiting_per_time(rows, nanoseconds(now - table.server.begun))
                                                : least_waiting(rows, solver_);
    auto iteration = chosen.iterations.begin();
    for (WorkerRow& row : table.workers) {
      if (is_present(row)) row.limit = row.clock + static_cast<Clock>(*iteration++) + 1;
    }
    table.server.barrier = now + static_cast<double>(chosen.t_sync) * 1e-9;
    table.server.phase = 1;
  }

  const std::uint64_t lookahead_;
  const Solver solver_;
  const bool weighs_length_;
};

}  // namespace

MadePolicy make_elastic_bsp(const SyncOptions& options) { return std::make_unique<ElasticBsp>(options); }

}  // namespace pyc::server
