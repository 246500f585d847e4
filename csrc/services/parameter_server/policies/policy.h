// A policy defines when a parameter server uses a gradient, and when it releases a worker: the difference between BSP,
// ASP, SSP and the others.
//
// A policy is a set of rules without clock, I/O or state of its own. Its state is in a table of plain data, so that the
// same code runs in a server's progress thread, in ranks that update shared memory, and in the simulator. All times are
// on one clock.
//
// The server's actions, in this order:
//
//   push      If the worker is not present, mark it as present and call on_presence. Count the push (clock, last_push,
//             interval), call on_push, add the gradient, update the weights, count the version, and set `waits`. Then
//             release the workers that may_go allows.
//   give-up   The same with on_give_up, without last_push, interval and gradient.
//   release   Set the row's version, released and waits, and call on_release.
//   presence  Mark the change in the row, call on_presence, update, and release the workers that may_go allows.
#pragma once

#include <memory>
#include <string>

#include "services/parameter_server/options.h"
#include "services/parameter_server/table.h"

namespace pyc::server {

/// The use of a pushed gradient. Each worker has an accumulator, a sum of gradients. An update is the sum over workers,
/// in ascending order, of weight * accumulator, and empties these accumulators. Workers of weight 0 take no part.
///
/// A policy that requests an update sets the weight of each row, and `gathered` to the number of gradients left.
struct Verdict {
  bool use = true;      ///< add the gradient to its worker's accumulator; otherwise discard it
  bool update = false;  ///< update the weights now
  // Of policies with has_next() only:
  bool next = false;  ///< use the worker's second accumulator instead
  bool keep = false;  ///< the update leaves all accumulators as they are
  bool turn =
      false;  ///< at the end, the second accumulator of every worker replaces the first one, and is empty afterwards
};

class Policy {
 public:
  virtual ~Policy() = default;

  /// A gradient of `worker`, already counted in its row, computed on the weights of `version`.
  virtual Verdict on_push(Table table, Worker worker, Version version, Seconds now) const = 0;

  /// A trial that the worker has given up (MindFlayer), already counted. It may complete an update.
  virtual Verdict on_give_up(Table table, Worker worker, Seconds now) const;

  /// The presence of a worker has changed. This may complete an update. Gradients left in its accumulator are used by
  /// the next update that would have used them.
  virtual Verdict on_presence(Table table, Worker worker, Seconds now) const = 0;

  /// Whether to release a worker that has pushed and waits. Called for any worker after on_push, on_give_up and
  /// on_presence; changes nothing.
  virtual bool may_go(Table table, Worker worker) const = 0;

  /// Whether others wait for a push of this worker. For messages, and to find missing workers.
  virtual bool is_awaited(Table table, Worker worker) const = 0;

  /// The worker has been released; its row has the changes already.
  virtual void on_release(Table, Worker, Seconds) const {}

  /// The table begins with the pushes and updates of a former server (Resumed).
  virtual void on_resume(Table) const {}

  /// Whether workers have a second accumulator, for gradients that are too early for the next update.
  virtual bool has_next() const { return false; }

  /// The latest time to call `missing`; Collective::kNever if there is none.
  virtual Seconds deadline(Table table) const;
  /// A worker to take out as missing now, or the number of workers if there is none. The server marks it, calls
  /// on_presence, and asks again.
  virtual Worker missing(Table table, Seconds now) const;
};

/// Throws std::invalid_argument if an option of the policy is out of range.
std::unique_ptr<const Policy> make_policy(const Options& options);

}  // namespace pyc::server
