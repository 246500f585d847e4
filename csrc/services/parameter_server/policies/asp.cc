// Asynchronous parallel (section 2.2, equation 5; Recht et al. 2011, Dean et al. 2012).
//
// Rule: an arriving gradient is an update, and its worker continues at once.
//
// EAMSGD (Zhang et al. 2015, "Deep learning with elastic averaging SGD") has the same policy with another update rule:
// workers push their weights, every `period` of their own steps.
#include "services/parameter_server/policies/base.h"
#include "services/parameter_server/policies/policies.h"

namespace pyc::server {
namespace {

class Asp final : public ImmediatePolicy {
 public:
  explicit Asp(const SyncOptions& options) : ImmediatePolicy(options), are_weights_(options.kind == Sync::kEamsgd) {}

  /// EAMSGD averages weights of any age.
  Verdict on_push(Table table, Worker worker, Version version, Seconds now) const override {
    return are_weights_ ? update_by(table, worker, 1) : ImmediatePolicy::on_push(table, worker, version, now);
  }
  bool may_go(Table, Worker) const override { return true; }
  bool is_awaited(Table, Worker) const override { return false; }

 private:
  const bool are_weights_;
};

}  // namespace

MadePolicy make_asp(const SyncOptions& options) { return std::make_unique<Asp>(options); }

}  // namespace pyc::server
