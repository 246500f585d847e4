// Ringmaster ASGD (Maranjyan, Tyurin, Richtárik 2025, arXiv 2501.16168; the variant that stops no computation).
//
// Idea: only gradients that are too old make asynchronous SGD slow in theory. Without them its time complexity is
// optimal for any speeds of workers, including changing ones.
//
// Rule: a gradient with a delay below R is an update; others are discarded. The delay is the number of updates since
// the gradient's weights. No worker waits. The paper's R is max(1, ceil(sigma^2 / epsilon)); R = 1 is serial SGD by the
// fastest worker.
#include <stdexcept>

#include "services/parameter_server/policies/policies.h"
#include "services/parameter_server/policies/rows.h"

namespace pyc::server {
namespace {

class Ringmaster final : public Policy {
 public:
  explicit Ringmaster(const SyncOptions& options) : limit_(options.limit) {
    if (limit_ < 1) throw std::invalid_argument("Ringmaster: expected a limit >= 1");
  }

  Verdict on_push(Table table, Worker worker, Version version, Seconds) const override {
    const Version delay = table.server.version - version;
    return delay < limit_ ? update_by(table, worker, 1) : discarded();
  }
  Verdict on_presence(Table, Worker, Seconds) const override { return {}; }
  bool may_go(Table, Worker) const override { return true; }
  bool is_awaited(Table, Worker) const override { return false; }

 private:
  const Version limit_;
};

}  // namespace

MadePolicy make_ringmaster(const SyncOptions& options) { return std::make_unique<Ringmaster>(options); }

}  // namespace pyc::server
