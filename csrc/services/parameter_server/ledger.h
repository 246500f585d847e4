// What is counted around a policy: pushes, updates, who waits since when, who is let go, who is missing.
//
// It asks the policy and says what follows: steps, which every shard makes in this order, and releases. No I/O and no
// clock: `now` is of whoever holds it. Its memory is plain and may be shared: then callers hold a lock.
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
};

/// What a shard does, one after the other: it takes the gradient of that push, and updates its weights.
struct Step {
  static constexpr Clock kNoPush = 0;

  Worker worker = 0;
  Clock clock = kNoPush;    ///< the push that has a gradient; from 1
  bool use = false;         ///< it goes into its worker's accumulator; else it is thrown away
  bool adds = false;        ///< ... which has something already
  bool next = false;        ///< ... the second one
  bool turn = false;        ///< in the end every worker's second accumulator takes the place of the first
  bool keep = false;        ///< the update leaves the accumulators as they are; else they are empty afterwards
  Version update = 0;       ///< the number of the update, from 1; 0: none
  std::vector<Part> parts;  ///< of the update, ascending

  bool has_gradient() const { return clock != kNoPush; }
  /// Whether the gradient goes into this update and into no other: then it need not come into an accumulator.
  bool is_used_up() const {
    if (!use || adds || next || keep) return false;
    return std::any_of(parts.begin(), parts.end(), [this](const Part& part) { return part.worker == worker; });
  }
};

/// How a push came out, and from which version of the weights its worker may go on.
struct Outcome {
  Clock clock = 0;
  Version version = 0;
  std::uint64_t staleness = 0;  ///< updates between the weights of the gradient and its push
  bool used = false;
};

struct Release {
  Worker worker;
  Outcome outcome;
};

struct Decisions {
  std::vector<Step> steps;
  std::vector<Release> releases;
  std::vector<Worker> missing;  ///< taken out now

  void clear() {
    steps.clear();
    releases.clear();
    missing.clear();
  }
};

inline constexpr std::size_t kAges = 64;         ///< of the histogram; the last counts all that are older
inline constexpr std::size_t kSupersteps = 256;  ///< that are remembered

struct Superstep {
  Seconds length;
  Seconds slack;  ///< the longest wait for its end
};

/// Counts of one worker. What a worker asks often is atomic: it may look without the lock.
struct Account {
  std::uint64_t pushes = 0;     ///< with a gradient
  std::uint64_t discarded = 0;  ///< of them
  std::uint64_t given_up = 0;   ///< and pushes without an effect
  Seconds waiting = 0;
  Seconds called = 0;                ///< when its newest push or give-up came
  std::uint32_t filled[2] = {0, 0};  ///< whether its accumulators, the first and the second, have something
  Outcome pending;                   ///< of its newest push
  Outcome outcome;                   ///< of the newest after which it was let go; before `released`
  std::atomic<Clock> released{0};    ///< pushes after which it has been let go
};

struct Counts {
  std::uint64_t ages[kAges] = {};          ///< pushes by staleness
  Superstep supersteps[kSupersteps] = {};  ///< superstep k, from 1, at (k - 1) % kSupersteps
};

class Ledger {
 public:
  static std::size_t bytes(std::size_t workers);
  /// Of that many bytes, aligned to a cache line. `first`: it is new; else another has made it.
  Ledger(const Options& options, std::byte* memory, bool first, Seconds now);

  // Each adds to `decisions`.

  /// A gradient; one that counts, but is thrown away before it comes here, as if it were zero; a trial that is given
  /// up.
  enum class Kind : std::uint64_t { kGradient, kSkipped, kGivenUp };
  /// A push, computed on the weights of `version`.
  void push(Worker worker, Kind kind, Version version, Seconds now, Decisions& decisions);
  void leave(Worker worker, Seconds now, Decisions& decisions);
  /// Takes out who is missing. To be called when the deadline has passed.
  void look(Seconds now, Decisions& decisions);
  Seconds deadline() const { return policy_->deadline(table()); }

  /// Workers whose push others wait for.
  std::vector<Worker> awaited();
  const Account& account(Worker worker) const { return accounts_[worker]; }
  const WorkerRow& row(Worker worker) const { return rows_[worker]; }
  Version version() const { return server_->version; }
  std::uint64_t superstep() const { return server_->superstep; }
  const Counts& counts() const { return *counts_; }
  std::span<const std::byte> memory() const { return {memory_, bytes(workers_)}; }

 private:
  Table table() const { return {*server_, {rows_, workers_}}; }
  void take(const Verdict& verdict, Step& step);
  void follow(const Verdict& verdict, Step step, Decisions& decisions);
  void change(Worker worker, Presence presence, Seconds now, Decisions& decisions);
  void release(Seconds now, Decisions& decisions);
  void note_superstep(std::uint64_t before, Seconds begun, Seconds now);

  const std::unique_ptr<const Policy> policy_;
  const std::size_t workers_;
  std::byte* const memory_;
  ServerRow* server_;
  WorkerRow* rows_;
  Account* accounts_;
  Counts* counts_;
};

}  // namespace pyc::server
