// Ringmaster ASGD (Maranjyan, Tyurin, Richtárik 2025, arXiv 2501.16168; the variant that stops no computation).
//
// Idea: asynchronous SGD is slow in theory only for gradients that are too old. Without them its time complexity is
// optimal for any speeds of workers, and speeds that change.
//
// Rule: a gradient of a delay below R is an update; others are discarded. The delay is the number of updates since the
// weights on which it was computed. Nobody waits. The paper's R is max(1, ceil(sigma^2 / epsilon)); R = 1 is serial SGD
// by whoever is fastest.
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
