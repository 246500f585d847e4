// Bulk synchronous parallel (section 2.2, equation 4).
//
// Rule: an update is the mean of one gradient of each worker, summed in ascending order of workers, and then all
// workers continue. Training is therefore bitwise equal to serial training with the mean gradient.
//
// A gradient on older weights would break that. It is discarded, and its worker takes part again from the weights of
// its next pull. Such a gradient is from a worker that was missing, or that has not pulled since the last update.
#include "services/parameter_server/policies/base.h"
#include "services/parameter_server/policies/policies.h"

namespace pyc::server {
namespace {

class Bsp final : public PatientPolicy {
 public:
  using PatientPolicy::PatientPolicy;

  Verdict on_push(Table table, Worker worker, Version version, Seconds now) const override {
    if (version != table.server.version) return discarded();
    ++table.workers[worker].gathered;
    return end_superstep(table, now);
  }
  Verdict on_presence(Table table, Worker worker, Seconds now) const override {
    if (is_present(table.workers[worker])) return {};
    return end_superstep(table, now);
  }
  bool may_go(Table table, Worker worker) const override { return table.workers[worker].gathered == 0; }
  bool is_awaited(Table table, Worker worker) const override {
    return is_present(table.workers[worker]) && table.workers[worker].gathered == 0;
  }

 private:
  static Verdict end_superstep(Table table, Seconds now) {
    if (gathered(table) == 0) return {};
    if (!all_present(table, [](const WorkerRow& row) { return row.gathered > 0; })) return {};
    weigh_means(table);
    clear_gathered(table);
    ++table.server.superstep;
    table.server.begun = now;
    return {.update = true};
  }
};

}  // namespace

MadePolicy make_bsp(const SyncOptions& options) { return std::make_unique<Bsp>(options); }

}  // namespace pyc::server
