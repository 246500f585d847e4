// The state of policies: plain data, which may be in memory that processes share. Policies (policies/policy.h) read and
// write it; callers hold the server's lock.
#pragma once

#include <cstdint>
#include <span>

#include "core/types.h"

namespace pyc::server {

/// Index of a worker among the workers, which is not its rank.
using Worker = std::size_t;
/// A number of pushes of one worker.
using Clock = std::uint64_t;
/// A number of updates of the weights.
using Version = std::uint64_t;

inline constexpr Clock kNoLimit = ~Clock{0};
/// An interval or time that is not known yet.
inline constexpr Seconds kUnknown = -1;

enum class Presence : std::uint32_t {
  kPresent = 0,
  kMissing,  ///< it has not pushed for too long: out until its next push
  kLeft,     ///< it has left, until its next push
};

struct WorkerRow {
  Clock clock = 0;             ///< pushes and trials given up; counted by the server before it asks the policy
  Version version = 0;         ///< of the weights at its last release; the server's
  std::uint64_t gathered = 0;  ///< gradients in its accumulator; the policy's
  Clock limit = kNoLimit;      ///< pushes after which it waits; the policy's
  Seconds last_push = kUnknown;
  Seconds interval = kUnknown;  ///< from its release to its next push, without waiting; measured by the server
  Seconds released = kUnknown;  ///< time of its last release
  double weight = 0;            ///< of its accumulator in the update that the policy asks for
  std::uint64_t extra = 0;      ///< the policy's own
  Presence presence = Presence::kPresent;
  std::uint32_t waits = 0;       ///< whether it waits for its release
  Version oldest = 0;            ///< the policy's: gradients on older weights are discarded, since an absence
  Seconds predicted = kUnknown;  ///< the policy's: the interval that its pushes were predicted from (ElasticBSP)
  std::uint64_t next = 0;        ///< gradients in its second accumulator (Ringleader); the policy's
};

struct ServerRow {
  Version version = 0;          ///< updates so far; counted by the server
  std::uint64_t superstep = 0;  ///< barriers so far; counted by the policy
  Seconds begun = 0;            ///< time the superstep began; the server sets the first one, the policy the others
  Seconds barrier = kUnknown;   ///< predicted time of the next barrier; the policy's
  std::uint64_t phase = 0;      ///< the policy's own
};

struct Table {
  ServerRow& server;
  std::span<WorkerRow> workers;
};

}  // namespace pyc::server
