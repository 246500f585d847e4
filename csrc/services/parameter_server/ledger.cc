#include "services/parameter_server/ledger.h"

#include <algorithm>
#include <new>
#include <utility>

#include "core/checked.h"

namespace pyc::server {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t in_lines(std::size_t bytes) { return round_up(bytes, kLine); }

}  // namespace

std::size_t Ledger::bytes(std::size_t workers) {
  return in_lines(sizeof(ServerRow)) + in_lines(workers * sizeof(WorkerRow)) + in_lines(workers * sizeof(Account)) +
         in_lines(sizeof(Counts));
}

Ledger::Ledger(const Options& options, std::byte* memory, bool first, Seconds now)
    : policy_(make_policy(options)), workers_(options.workers.size()), memory_(memory) {
  const auto next = [&memory](std::size_t size) { return std::exchange(memory, memory + in_lines(size)); };
  server_ = reinterpret_cast<ServerRow*>(next(sizeof(ServerRow)));
  rows_ = reinterpret_cast<WorkerRow*>(next(workers_ * sizeof(WorkerRow)));
  accounts_ = reinterpret_cast<Account*>(next(workers_ * sizeof(Account)));
  counts_ = reinterpret_cast<Counts*>(next(sizeof(Counts)));
  if (!first) return;
  ::new (server_) ServerRow{};
  server_->begun = now;
  for (Worker w = 0; w < workers_; ++w) {
    ::new (rows_ + w) WorkerRow{};
    ::new (accounts_ + w) Account{};
  }
  ::new (counts_) Counts{};
  if (options.resumed) resume(*options.resumed);
}

void Ledger::resume(const Resumed& resumed) {
  included_ = resumed.clocks;
  for (const Resumed::Part& part : resumed.parts) {
    for (Worker w = 0; w < workers_; ++w) included_[w] = std::max(included_[w], part.included[w]);
  }
  server_->version = resumed.version;
  for (Worker w = 0; w < workers_; ++w) {
    const Clock clock = resumed.clocks[w];
    rows_[w].clock = clock;
    rows_[w].version = resumed.version;
    accounts_[w].outcome = {.clock = clock, .version = resumed.version, .staleness = 0, .used = clock != 0};
    accounts_[w].released.store(clock);
  }
  policy_->on_resume(table());
}

// ------------------------------------------------------------------------------------------------ events

void Ledger::push(Worker worker, Kind kind, Version version, Seconds now, Decisions& decisions) {
  WorkerRow& row = rows_[worker];
  Account& account = accounts_[worker];
  if (row.presence != Presence::kPresent) change(worker, Presence::kPresent, now, decisions);
  ++row.clock;
  account.called = now;
  version = version_of(worker, version);
  const std::uint64_t superstep = server_->superstep;
  const Seconds begun = server_->begun;
  const std::uint64_t staleness = server_->version - version;
  Step step;
  step.worker = worker;
  Verdict verdict;
  if (kind != Kind::kGivenUp) {
    if (row.released != kUnknown) row.interval = now - row.released;
    row.last_push = now;
    verdict = policy_->on_push(table(), worker, version, now);
  } else {
    verdict = policy_->on_give_up(table(), worker, now);
  }
  if (kind == Kind::kGradient) {
    take(verdict, step);
    ++account.pushes;
    if (!step.use) ++account.discarded;
    ++counts_->ages[std::min<std::uint64_t>(staleness, kAges - 1)];
  } else {
    ++account.given_up;
  }
  account.pending = {.clock = row.clock, .version = 0, .staleness = staleness, .used = step.use};
  follow(verdict, std::move(step), decisions);
  row.waits = 1;
  note_superstep(superstep, begun, now);
  release(now, decisions);
}

/// A push that is repeated because a part of the weights does not include it must not be discarded: another part does.
Version Ledger::version_of(Worker worker, Version version) const {
  const bool is_included = !included_.empty() && rows_[worker].clock <= included_[worker];
  return is_included ? server_->version : version;
}

void Ledger::take(const Verdict& verdict, Step& step) {
  step.clock = rows_[step.worker].clock;
  if (!verdict.use) return;
  std::uint32_t& filled = accounts_[step.worker].filled[verdict.next ? 1 : 0];
  step.use = true;
  step.next = verdict.next;
  step.adds = filled != 0;
  filled = 1;
}

void Ledger::leave(Worker worker, Seconds now, Decisions& decisions) {
  if (rows_[worker].presence == Presence::kLeft) return;
  change(worker, Presence::kLeft, now, decisions);
  release(now, decisions);
}

void Ledger::look(Seconds now, Decisions& decisions) {
  for (;;) {
    const Worker missing = policy_->missing(table(), now);
    if (missing >= workers_) break;
    decisions.missing.push_back(missing);
    change(missing, Presence::kMissing, now, decisions);
  }
  release(now, decisions);
}

// ------------------------------------------------------------------------------------------------ decisions

void Ledger::change(Worker worker, Presence presence, Seconds now, Decisions& decisions) {
  const std::uint64_t superstep = server_->superstep;
  const Seconds begun = server_->begun;
  rows_[worker].presence = presence;
  follow(policy_->on_presence(table(), worker, now), {}, decisions);
  note_superstep(superstep, begun, now);
}

void Ledger::follow(const Verdict& verdict, Step step, Decisions& decisions) {
  if (verdict.update) {
    step.update = ++server_->version;
    step.keep = verdict.keep;
    for (Worker w = 0; w < workers_; ++w) {
      if (accounts_[w].filled[0] == 0 || rows_[w].weight == 0) continue;
      step.parts.push_back({w, rows_[w].weight});
      if (!verdict.keep) accounts_[w].filled[0] = 0;
    }
  }
  step.turn = verdict.turn;
  for (Worker w = 0; verdict.turn && w < workers_; ++w) {
    accounts_[w].filled[0] = std::exchange(accounts_[w].filled[1], 0);
  }
  if (step.has_gradient() || step.update != 0 || step.turn) decisions.steps.push_back(std::move(step));
}

/// Repeats until nothing changes, because a release may allow another one.
void Ledger::release(Seconds now, Decisions& decisions) {
  for (bool changed = true; changed;) {
    changed = false;
    for (Worker w = 0; w < workers_; ++w) {
      WorkerRow& row = rows_[w];
      Account& account = accounts_[w];
      if (row.waits == 0 || !policy_->may_go(table(), w)) continue;
      row.waits = 0;
      row.version = server_->version;
      row.released = now;
      account.waiting += now - account.called;
      account.outcome = account.pending;
      account.outcome.version = row.version;
      policy_->on_release(table(), w, now);
      decisions.releases.push_back({w, account.outcome});
      account.released.store(row.clock);
      changed = true;
    }
  }
}

void Ledger::note_superstep(std::uint64_t before, Seconds begun, Seconds now) {
  if (server_->superstep == before) return;
  Seconds slack = 0;
  for (Worker w = 0; w < workers_; ++w) {
    if (rows_[w].waits != 0) slack = std::max(slack, now - accounts_[w].called);
  }
  counts_->supersteps[(server_->superstep - 1) % kSupersteps] = {now - begun, slack};
}

std::vector<Worker> Ledger::awaited() {
  std::vector<Worker> workers;
  for (Worker w = 0; w < workers_; ++w) {
    if (policy_->is_awaited(table(), w)) workers.push_back(w);
  }
  return workers;
}

}  // namespace pyc::server
