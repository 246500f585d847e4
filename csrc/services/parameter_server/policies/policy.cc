#include "services/parameter_server/policies/policy.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "engine/collective.h"
#include "services/parameter_server/policies/base.h"
#include "services/parameter_server/policies/policies.h"

namespace pyc::server {

Verdict Policy::on_give_up(Table, Worker, Seconds) const {
  throw std::logic_error("only MindFlayer has trials that are given up");
}

Seconds Policy::deadline(Table) const { return Collective::kNever; }

Worker Policy::missing(Table table, Seconds) const { return table.workers.size(); }

// --- missing workers

namespace {

/// Intervals may be microseconds, and the system may delay a process for longer than any multiple of them.
constexpr Seconds kLeastPatience = 1;

}  // namespace

Seconds PatientPolicy::longest_interval(Table table) const {
  Seconds longest = kUnknown;
  for (const WorkerRow& row : table.workers) longest = std::max(longest, row.interval);
  return longest;
}

bool PatientPolicy::has_waiting(Table table) const {
  return std::any_of(table.workers.begin(), table.workers.end(),
                     [](const WorkerRow& row) { return is_present(row) && row.waits != 0; });
}

Seconds PatientPolicy::deadline_of(Table table, Worker worker, Seconds longest) const {
  const WorkerRow& row = table.workers[worker];
  if (!is_present(row) || row.waits != 0 || !is_awaited(table, worker)) return Collective::kNever;
  return std::max({row.released, row.last_push, table.server.begun}) + std::max(patience_ * longest, kLeastPatience);
}

Seconds PatientPolicy::deadline(Table table) const {
  Seconds first = Collective::kNever;
  const Seconds longest = longest_interval(table);
  if (longest == kUnknown || !has_waiting(table)) return first;
  for (Worker w = 0; w < table.workers.size(); ++w) first = std::min(first, deadline_of(table, w, longest));
  return first;
}

Worker PatientPolicy::missing(Table table, Seconds now) const {
  const Seconds longest = longest_interval(table);
  if (longest == kUnknown || !has_waiting(table)) return table.workers.size();
  Worker worker = 0;
  while (worker < table.workers.size() && deadline_of(table, worker, longest) > now) ++worker;
  return worker;
}

// --- construction

std::unique_ptr<const Policy> make_policy(const Options& options) {
  const SyncOptions& sync = options.sync;
  if (!(sync.patience > 0)) throw std::invalid_argument("patience: expected a number > 0");
  switch (sync.kind) {
    case Sync::kBsp:
      return make_bsp(sync);
    case Sync::kAsp:
    case Sync::kEamsgd:  // only its update rule differs
      return make_asp(sync);
    case Sync::kSsp:
      return make_ssp(sync);
    case Sync::kDssp:
      return make_dssp(sync);
    case Sync::kElasticBsp:
      return make_elastic_bsp(sync);
    case Sync::kRingmaster:
      return make_ringmaster(sync);
    case Sync::kRennala:
      return make_rennala(sync);
    case Sync::kRingleader:
      return make_ringleader(sync);
    case Sync::kRescaled:
      return make_rescaled(sync);
    case Sync::kMindFlayer:
      if ((sync.trials.size() != 1 && sync.trials.size() != options.workers.size()) ||
          sync.allotted.size() != sync.trials.size()) {
        throw std::invalid_argument("trials and their times: expected one of all workers, or one of each");
      }
      return make_mindflayer(sync);
  }
  throw std::invalid_argument("an unknown way to synchronize");
}

}  // namespace pyc::server
