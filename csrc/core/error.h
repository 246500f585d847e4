// Errors that cross a layer. The bindings turn each into the Python exception of the same name.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/types.h"

namespace pyc {

/// A plan that cannot be right; the text names the op.
struct ScheduleError : std::logic_error {
  using std::logic_error::logic_error;
};

/// The transport failed: the communicator is unusable afterwards.
struct TransportError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A wait ran into its time limit; the text names the collective, the round and the missing ranks.
struct StallError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What ranks have given for the same call does not agree; the text names them and what differs.
struct MismatchError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// A rank that is needed has died.
class RankFailedError : public std::runtime_error {
 public:
  /// `ranks`: who died, ascending; none: it is not known.
  explicit RankFailedError(const std::string& text, std::vector<Rank> ranks = {})
      : std::runtime_error(text), ranks_(std::make_shared<const std::vector<Rank>>(std::move(ranks))) {}

  const std::vector<Rank>& ranks() const { return *ranks_; }

 private:
  std::shared_ptr<const std::vector<Rank>> ranks_;  // shared: copies of an exception must not throw
};

/// The object was closed, or MPI was finalized under it.
struct ClosedError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// An invariant of this library is broken: never the caller's fault.
struct InternalError : std::logic_error {
  using std::logic_error::logic_error;
};

}  // namespace pyc
