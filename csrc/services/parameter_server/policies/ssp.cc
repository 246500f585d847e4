// Stale synchronous parallel (section 2.2; Ho et al. 2013, "More effective distributed ML via a stale synchronous
// parallel parameter server", section 2).
//
// Rule: an arriving gradient is an update. After c pushes, a worker continues if the slowest worker has pushed at least
// c - s times: "the fastest and slowest must be at most s clocks apart". s = 0 is lock-step, although each gradient is
// an update by itself.
#include "services/parameter_server/policies/base.h"
#include "services/parameter_server/policies/policies.h"
#include "services/parameter_server/policies/progress.h"

namespace pyc::server {
namespace {

class Ssp final : public ImmediatePolicy {
 public:
  explicit Ssp(const SyncOptions& options) : ImmediatePolicy(options), bound_(options.low) {}

  void on_resume(Table table) const override { level(table, bound_); }
  bool may_go(Table table, Worker worker) const override { return lead(table, worker) <= bound_; }
  bool is_awaited(Table table, Worker worker) const override { return is_too_slow(table, worker, bound_); }

 private:
  void after_presence(Table table, Worker worker, Seconds) const override {
    if (is_present(table.workers[worker])) join_slowest(table, worker);
  }

  const Clock bound_;
};

}  // namespace

MadePolicy make_ssp(const SyncOptions& options) { return std::make_unique<Ssp>(options); }

}  // namespace pyc::server
