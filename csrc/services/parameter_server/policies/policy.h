// When a parameter server uses a gradient, and whom it lets go on: what differs between BSP, ASP, SSP and the others.
//
// A policy is a set of rules: no clock, no I/O, no state of its own. What it remembers stands in a table of plain data.
// So the same code runs in a server's progress thread, in ranks that push themselves into shared memory, and in the
// simulator. All times are of one clock, that of whoever serves.
//
// What the server does, in this order:
//
//   a push       if the worker is not present, it says in its row that it is, and calls on_presence. It counts the push
//                (clock, last_push, interval), calls on_push, adds the gradient, updates the weights, counts the
//                version, and sets `waits`. Then it lets go whom may_go says.
//   a give-up    the same with on_give_up, without last_push, interval and gradient.
//   letting go   it sets the row's version, released and waits, and calls on_release.
//   a presence   it says in the row what has changed, calls on_presence, updates, and lets go whom may_go says.
#pragma once

#include <memory>
#include <string>

#include "services/parameter_server/options.h"
#include "services/parameter_server/table.h"

namespace pyc::server {

/// What happens to a gradient that has come. Each worker has an accumulator, a sum of gradients.
///
/// A policy that asks for an update has set the weight of every row, and what is gathered to what will be left.
struct Verdict {
  bool use = true;      ///< it is added to its worker's accumulator; else it is discarded
  bool update = false;  ///< now: by the sum over workers of weight * accumulator, whose accumulators are then empty.
                        ///< Workers of weight 0 take no part. The sum goes in ascending order of workers.
  // Of policies with has_next() only:
  bool next = false;  ///< the gradient is added to its worker's second accumulator instead
  bool keep = false;  ///< the update leaves all accumulators as they are
  bool turn =
      false;  ///< in the end, of every worker: the second accumulator takes the place of the first, and is empty
};

class Policy {
 public:
  virtual ~Policy() = default;

  /// A gradient of `worker`, already counted in its row; `version` is that of the weights on which it was computed.
  virtual Verdict on_push(Table table, Worker worker, Version version, Seconds now) const = 0;

  /// A trial that the worker has given up (MindFlayer), already counted: nothing comes of it. It may complete an
  /// update.
  virtual Verdict on_give_up(Table table, Worker worker, Seconds now) const;

  /// The presence of a worker has changed. What it left in its accumulator is used by the next update that would have
  /// used it. It may complete an update.
  virtual Verdict on_presence(Table table, Worker worker, Seconds now) const = 0;

  /// Whether a worker that has pushed, and waits, may be given weights and go on. After on_push and on_presence, of
  /// any worker; changes nothing.
  virtual bool may_go(Table table, Worker worker) const = 0;

  /// Whether others wait for a push of this worker. For texts, and for whom to take out when it is missing.
  virtual bool is_awaited(Table table, Worker worker) const = 0;

  /// The worker has been given weights and goes on; its row says so already.
  virtual void on_release(Table, Worker, Seconds) const {}

  /// Whether workers have a second accumulator: for gradients that come too early for the update at hand.
  virtual bool has_next() const { return false; }

  /// When the policy wants to be asked for missing workers at the latest; Collective::kNever's value if never.
  virtual Seconds deadline(Table table) const;
  /// A worker that is to be taken out as missing now, or the number of workers if none. The server then marks it and
  /// calls on_presence, and asks again.
  virtual Worker missing(Table table, Seconds now) const;
};

/// Throws std::invalid_argument if an option of the policy is out of its range.
std::unique_ptr<const Policy> make_policy(const Options& options);

}  // namespace pyc::server
