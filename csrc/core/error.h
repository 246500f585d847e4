// Errors that cross a layer. The bindings translate each to the Python exception of the same name.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/types.h"

namespace pyc {

/// An invalid plan. The text names the op.
struct ScheduleError : std::logic_error {
  using std::logic_error::logic_error;
};

/// The transport failed. The communicator is unusable afterwards.
struct TransportError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A wait reached its time limit. The text names the collective, the round and the missing ranks.
struct StallError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Ranks disagree about the arguments of a call. The text names the ranks and the difference.
struct MismatchError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

class RankFailedError : public std::runtime_error {
 public:
  /// `ranks`: the dead ranks, ascending; empty if unknown.
  explicit RankFailedError(const std::string& text, std::vector<Rank> ranks = {})
      : std::runtime_error(text), ranks_(std::make_shared<const std::vector<Rank>>(std::move(ranks))) {}

  const std::vector<Rank>& ranks() const { return *ranks_; }

 private:
  std::shared_ptr<const std::vector<Rank>> ranks_;  // shared: copying an exception must not throw
};

/// The object is closed, or MPI was finalized while the object was open.
struct ClosedError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// An invariant of this library is broken. Never the caller's fault.
struct InternalError : std::logic_error {
  using std::logic_error::logic_error;
};

}  // namespace pyc
