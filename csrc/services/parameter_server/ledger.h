// The state around a policy: counts of pushes and updates, and which workers wait, are released or are missing. The
// ledger asks the policy and returns decisions: releases, and steps that all shards execute in the same order.
//
// No I/O and no clock: callers pass `now`. Its memory is plain data. If processes share it, they hold a lock during
// each call.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "services/parameter_server/options.h"
#include "services/parameter_server/policies/policy.h"
#include "services/parameter_server/table.h"

namespace pyc::server {

/// weight * accumulator of a worker.
struct Part {
  Worker worker;
  double weight;
  Clock newest = 0;  ///< the newest push whose gradient is in the accumulator; see Shard::note
};

/// A step of a shard: take the gradient of a push, then update the weights.
struct Step {
  static constexpr Clock kNoPush = 0;

  Worker worker = 0;
  Clock clock = kNoPush;    ///< the push with the gradient, from 1, or kNoPush
  bool use = false;         ///< the gradient goes into its worker's accumulator; otherwise it is discarded
  bool adds = false;        ///< ... and is added to the values there; otherwise it replaces them
  bool next = false;        ///< ... the second accumulator
  bool turn = false;        ///< at the end, each worker's second accumulator replaces its first
  bool keep = false;        ///< the update keeps the accumulators; otherwise it empties them
  Version update = 0;       ///< number of the update, from 1; 0: none
  std::vector<Part> parts;  ///< ascending

  bool has_gradient() const { return clock != kNoPush; }
  /// Whether only this update uses the gradient, which then needs no accumulator.
  bool is_used_up() const {
    if (!use || adds || next || keep) return false;
    return std::any_of(parts.begin(), parts.end(), [this](const Part& part) { return part.worker == worker; });
  }
};

/// The result of a push. The worker continues from `version` of the weights.
struct Outcome {
  Clock clock = 0;
  Version version = 0;
  std::uint64_t staleness = 0;  ///< updates between the gradient's weights and its push
  bool used = false;
};

struct Release {
  Worker worker;
  Outcome outcome;
};

struct Decisions {
  std::vector<Step> steps;
  std::vector<Release> releases;
  std::vector<Worker> missing;

  void clear() {
    steps.clear();
    releases.clear();
    missing.clear();
  }
};

inline constexpr std::size_t kAges = 64;  ///< bins of the histogram; the last one counts all older gradients
inline constexpr std::size_t kSupersteps = 256;

struct Superstep {
  Seconds length;
  Seconds slack;  ///< longest wait of a worker for its end
};

/// Counts of one worker, which reads `released` and `outcome` without the lock.
struct Account {
  std::uint64_t pushes = 0;     ///< gradients
  std::uint64_t discarded = 0;  ///< gradients that the policy discarded
  std::uint64_t given_up = 0;   ///< trials given up, and skipped gradients
  Seconds waiting = 0;
  Seconds called = 0;                ///< time of its newest push or give-up
  std::uint32_t filled[2] = {0, 0};  ///< whether its first and second accumulator have values
  Outcome pending;                   ///< of its newest push
  Outcome outcome;                   ///< of the newest push with a release; written before `released`
  std::atomic<Clock> released{0};    ///< pushes with a release
};

struct Counts {
  std::uint64_t ages[kAges] = {};          ///< pushes by staleness
  Superstep supersteps[kSupersteps] = {};  ///< superstep k, from 1, is at (k - 1) % kSupersteps
};

class Ledger {
 public:
  static std::size_t bytes(std::size_t workers);
  /// `memory`: bytes(workers), aligned to a cache line. `first`: initializes it; otherwise another ledger has done so.
  Ledger(const Options& options, std::byte* memory, bool first, Seconds now);

  // These append to `decisions`.

  /// kSkipped: a gradient that the worker has discarded; the policy counts it as zero. kGivenUp: a trial without a
  /// gradient.
  enum class Kind : std::uint64_t { kGradient, kSkipped, kGivenUp };
  /// `version`: of the weights that the gradient was computed on.
  void push(Worker worker, Kind kind, Version version, Seconds now, Decisions& decisions);
  void leave(Worker worker, Seconds now, Decisions& decisions);
  /// Takes out missing workers. Call it when the deadline has passed.
  void look(Seconds now, Decisions& decisions);
  Seconds deadline() const { return policy_->deadline(table()); }

  std::vector<Worker> awaited();
  const Account& account(Worker worker) const { return accounts_[worker]; }
  const WorkerRow& row(Worker worker) const { return rows_[worker]; }
  Version version() const { return server_->version; }
  std::uint64_t superstep() const { return server_->superstep; }
  const Counts& counts() const { return *counts_; }
  std::span<const std::byte> memory() const { return {memory_, bytes(workers_)}; }

 private:
  void resume(const Resumed& resumed);
  Table table() const { return {*server_, {rows_, workers_}}; }
  void take(const Verdict& verdict, Step& step);
  void follow(const Verdict& verdict, Step step, Decisions& decisions);
  void change(Worker worker, Presence presence, Seconds now, Decisions& decisions);
  void release(Seconds now, Decisions& decisions);
  void note_superstep(std::uint64_t before, Seconds begun, Seconds now);

  Version version_of(Worker worker, Version version) const;

  const std::unique_ptr<const Policy> policy_;
  const std::size_t workers_;
  std::byte* const memory_;
  ServerRow* server_;
  WorkerRow* rows_;
  Account* accounts_;
  Counts* counts_;
  std::vector<Clock> included_;  // by worker: pushes that a part of the weights includes
};

}  // namespace pyc::server
