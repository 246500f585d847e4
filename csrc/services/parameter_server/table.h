// What a parameter server remembers of its workers: a table of plain data, which may lie in memory that processes
// share. Policies (policies/policy.h) read and write it; whoever holds the server's lock calls them.
#pragma once

#include <cstdint>
#include <span>

#include "core/types.h"

namespace pyc::server {

/// Index of a worker; ranks are the service's business.
using Worker = std::size_t;
/// A number of pushes of one worker.
using Clock = std::uint64_t;
/// A number of updates of the weights.
using Version = std::uint64_t;

inline constexpr Clock kNoLimit = ~Clock{0};
/// Of intervals and times that are not known yet.
inline constexpr Seconds kUnknown = -1;

enum class Presence : std::uint32_t {
  kPresent = 0,
  kMissing,  ///< it has not pushed for too long: taken out until it pushes again
  kLeft,     ///< for good, or until it comes back by itself
};

struct WorkerRow {
  Clock clock = 0;             ///< pushes and trials given up; the server counts, before it asks the policy
  Version version = 0;         ///< of the weights that it has been given last: a gradient is as old as the difference
  std::uint64_t gathered = 0;  ///< gradients in its accumulator; the policy counts
  Clock limit = kNoLimit;      ///< the policy's: pushes after which it waits
  Seconds last_push = kUnknown;
  Seconds interval = kUnknown;  ///< from being released to its next push: without waiting; the server measures
  Seconds released = kUnknown;  ///< when it was last given weights, or told to go on
  double weight = 0;            ///< of its accumulator in the update that the policy asks for
  std::uint64_t extra = 0;      ///< the policy's own
  Presence presence = Presence::kPresent;
  std::uint32_t waits = 0;       ///< whether it waits to be let go
  Version oldest = 0;            ///< the policy's: since an absence, gradients of older weights are discarded
  Seconds predicted = kUnknown;  ///< the policy's: the interval from which its pushes were predicted (ElasticBSP)
  std::uint64_t next = 0;        ///< gradients in its second accumulator (Ringleader); the policy counts
};

struct ServerRow {
  Version version = 0;          ///< updates so far; the server counts
  std::uint64_t superstep = 0;  ///< barriers so far; the policy counts
  Seconds begun = 0;  ///< when the superstep began; the server says when the first one did, the policy the others
  Seconds barrier = kUnknown;  ///< when the policy expects the next one
  std::uint64_t phase = 0;     ///< the policy's own
};

struct Table {
  ServerRow& server;
  std::span<WorkerRow> workers;
};

}  // namespace pyc::server
