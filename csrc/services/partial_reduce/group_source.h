// Where a rank's groups come from: what a partial reduce needs to know about whoever makes them.
//
// All calls come from the holder of the engine's progress lock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/types.h"
#include "services/partial_reduce/failure_reports.h"
#include "transport/transport.h"

namespace pyc {

/// A group that this rank may perform now.
struct Turn {
  std::uint64_t sequence = 0;    ///< the same on all members
  std::vector<Rank> members;     ///< ascending
  std::int64_t newest_step = 0;  ///< the largest step that was known when the group started, on all members the same
  std::int32_t conflicts = 0;    ///< earlier groups that it had to wait for when it was generated
  bool answers = true;           ///< the request of this rank, its last one or its next
};

class GroupSource {
 public:
  virtual ~GroupSource() = default;

  /// This rank wants to synchronise. `group`: what a rule says; empty if a generator is asked.
  virtual void request(std::int64_t step, const std::vector<Rank>& group) = 0;
  /// The next group of this rank, if it has started; null if not. Valid until `performed` or a message.
  virtual const Turn* next() const = 0;
  /// This rank has performed what `next` said.
  virtual void performed() = 0;
  /// It will make no request any more; not while one is open.
  virtual void leave() = 0;
  virtual void deliver(Rank from, ConstBytes message) = 0;

  /// There will be no further group of this rank, nor of anybody else.
  virtual bool finished() const = 0;
  virtual std::vector<Rank> not_left() const = 0;

  /// Tells all other ranks that this rank's device has failed.
  virtual void report_failure(const std::string& text) = 0;
  /// What another rank has told of its device, once it has.
  const std::optional<std::string>& failure() const { return failures_.first(); }

  // For the report of a stall: asks, and says what is known; nothing as long as there is no answer.
  virtual void inquire() = 0;
  virtual std::optional<std::string> explanation() const = 0;
  /// What to say if there never is one.
  virtual std::string silence() const = 0;

 protected:
  FailureReports failures_;
};

}  // namespace pyc
