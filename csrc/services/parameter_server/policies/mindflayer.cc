// MindFlayer SGD (Maranjyan, Shaikh Omar, Richtárik 2025, arXiv 2410.04285), for heavy-tailed computing times.
//
// Idea: a worker gives up a gradient that takes too long and begins another one, because a long computation may take
// much longer still.
//
// Rule: in each superstep, worker i makes B_i trials on the same weights, each of at most the time t_i, and then waits.
// When all trials are done, the update is the mean of the gradients that have arrived, and all continue. If there are
// none, all continue without an update.
//
// The mean is unbiased: the success of a trial does not depend on the gradient's value, given any positive number of
// successes. Division by the expected number, the sum of p_i B_i with success probabilities p_i, would be unbiased too,
// but the p_i are unknown.
//
// A gradient that arrives after its time is a failed trial. The time is measured from the release, so it includes both
// messages. A gradient on older weights is a failed trial too: its worker was missing, or did not pull after the last
// superstep. A worker that returns waits for the end of the superstep.
//
// State: a row's `limit` is the number of trials at which it waits, or kNoLimit in the first superstep.
#include <algorithm>
#include <stdexcept>

#include "services/parameter_server/policies/base.h"
#include "services/parameter_server/policies/policies.h"

namespace pyc::server {
namespace {

class MindFlayer final : public PatientPolicy {
 public:
  explicit MindFlayer(const SyncOptions& options)
      : PatientPolicy(options), trials_(options.trials), allotted_(options.allotted) {
    const auto is_none = [](std::uint64_t trials) { return trials == 0; };
    const auto is_no_time = [](Seconds time) { return !(time > 0); };
    if (std::any_of(trials_.begin(), trials_.end(), is_none) ||
        std::any_of(allotted_.begin(), allotted_.end(), is_no_time)) {
      throw std::invalid_argument("MindFlayer: expected at least 1 trial, of a time > 0");
    }
  }

  Verdict on_push(Table table, Worker worker, Version version, Seconds now) const override {
    WorkerRow& row = table.workers[worker];
    const bool succeeds = version == table.server.version && is_in_time(row, worker);
    if (succeeds) ++row.gathered;
    Verdict verdict = end_superstep(table, now);
    verdict.use = succeeds;
    return verdict;
  }
  Verdict on_give_up(Table table, Worker, Seconds now) const override { return end_superstep(table, now); }
  Verdict on_presence(Table table, Worker worker, Seconds now) const override {
    WorkerRow& row = table.workers[worker];
    if (is_present(row)) {
      row.limit = row.clock + 1;
      return {};
    }
    return end_superstep(table, now);
  }
  void on_resume(Table table) const override {
    for (Worker w = 0; w < table.workers.size(); ++w) {
      table.workers[w].limit = table.workers[w].clock + of(trials_, w);
    }
  }
  bool may_go(Table table, Worker worker) const override { return !is_done(table, worker); }
  bool is_awaited(Table table, Worker worker) const override {
    return is_present(table.workers[worker]) && !is_done(table, worker);
  }

 private:
  /// If all trials are given up, no interval is known.
  Seconds longest_interval(Table table) const override {
    const Seconds longest_trial = *std::max_element(allotted_.begin(), allotted_.end());
    return std::max(PatientPolicy::longest_interval(table), longest_trial);
  }

  template <class T>
  static T of(const std::vector<T>& values, Worker worker) {
    return values.size() == 1 ? values[0] : values[worker];
  }
  bool is_in_time(const WorkerRow& row, Worker worker) const {
    return row.interval == kUnknown || nanoseconds(row.interval) <= nanoseconds(of(allotted_, worker));
  }
  bool is_done(Table table, Worker worker) const {
    const WorkerRow& row = table.workers[worker];
    return row.clock >= (row.limit == kNoLimit ? of(trials_, worker) : row.limit);
  }

  Verdict end_superstep(Table table, Seconds now) const {
    for (Worker w = 0; w < table.workers.size(); ++w) {
      if (is_awaited(table, w)) return {};
    }
    const std::uint64_t all = gathered(table);
    if (all == 0 && !any_present(table)) return {};
    for (Worker w = 0; w < table.workers.size(); ++w) {
      WorkerRow& row = table.workers[w];
      row.weight = row.gathered > 0 ? 1 / static_cast<double>(all) : 0;
      row.limit = row.clock + of(trials_, w);
    }
    clear_gathered(table);
    ++table.server.superstep;
    table.server.begun = now;
    return {.update = all > 0};
  }

  const std::vector<std::uint64_t> trials_;
  const std::vector<Seconds> allotted_;
};

}  // namespace

MadePolicy make_mindflayer(const SyncOptions& options) { return std::make_unique<MindFlayer>(options); }

}  // namespace pyc::server
