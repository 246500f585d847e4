// Rescaled asynchronous SGD (Mahran, Maranjyan, Richtárik 2026, arXiv 2605.13434).
//
// Idea: in asynchronous SGD fast workers make more updates, so that their data counts more. If a worker's rate is
// proportional to its time per gradient, each worker contributes the same amount per time.
//
// Rule: a gradient is an update, weighted by its worker's interval over the mean interval of all workers. The mean
// weight is 1, and equally fast workers run plain asynchronous SGD. No worker waits. The paper assumes known, fixed
// speeds; here weights follow the latest intervals, and a worker without a known interval has weight 1.
#include <algorithm>

#include "services/parameter_server/policies/base.h"
#include "services/parameter_server/policies/policies.h"

namespace pyc::server {
namespace {

class Rescaled final : public Policy {
 public:
  Verdict on_push(Table table, Worker worker, Version version, Seconds) const override {
    if (is_from_before_return(table, worker, version)) return discarded();
    return update_by(table, worker, weight_of(table, table.workers[worker]));
  }
  Verdict on_presence(Table table, Worker worker, Seconds) const override {
    note_presence(table, worker);
    return {};
  }
  bool may_go(Table, Worker) const override { return true; }
  bool is_awaited(Table, Worker) const override { return false; }

 private:
  static double weight_of(Table table, const WorkerRow& own) {
    Seconds sum = 0;
    int known = 0;
    for (const WorkerRow& row : table.workers) {
      if (!is_present(row) || row.interval == kUnknown) continue;
      sum += std::max(row.interval, kShortest);
      ++known;
    }
    return own.interval == kUnknown ? 1 : std::max(own.interval, kShortest) * known / sum;
  }
  static constexpr Seconds kShortest = 1e-9;  // an interval may measure 0, and a weight of 0 means no update
};

}  // namespace

MadePolicy make_rescaled(const SyncOptions&) { return std::make_unique<Rescaled>(); }

}  // namespace pyc::server
