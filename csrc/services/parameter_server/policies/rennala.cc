// Rennala SGD (Tyurin, Richtárik 2023, "Optimal time complexities of parallel stochastic optimization methods under a
// fixed computation model", NeurIPS).
//
// Idea: minibatch SGD whose batch is computed by the fast workers.
//
// Rule: the server gathers gradients on the newest weights, of any workers, and discards older ones. The mean of S of
// them is an update. No worker waits. The paper's S is max(1, ceil(sigma^2 / epsilon)).
//
// Gradients of a worker count even if it has left since then.
#include <stdexcept>

#include "services/parameter_server/policies/policies.h"
#include "services/parameter_server/policies/rows.h"

namespace pyc::server {
namespace {

class Rennala final : public Policy {
 public:
  explicit Rennala(const SyncOptions& options) : batch_(options.limit) {
    if (batch_ < 1) throw std::invalid_argument("Rennala: expected a batch >= 1");
  }

  Verdict on_push(Table table, Worker worker, Version version, Seconds) const override {
    if (version != table.server.version) return discarded();
    ++table.workers[worker].gathered;
    if (gathered(table) < batch_) return {};
    for (WorkerRow& row : table.workers) row.weight = row.gathered > 0 ? 1 / static_cast<double>(batch_) : 0;
    clear_gathered(table);
    return {.update = true};
  }
  Verdict on_presence(Table, Worker, Seconds) const override { return {}; }
  bool may_go(Table, Worker) const override { return true; }
  bool is_awaited(Table, Worker) const override { return false; }

 private:
  const std::uint64_t batch_;
};

}  // namespace

MadePolicy make_rennala(const SyncOptions& options) { return std::make_unique<Rennala>(options); }

}  // namespace pyc::server
