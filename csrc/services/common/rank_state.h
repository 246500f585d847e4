// States of ranks in a round that does not complete, for the text of a StallError.
#pragma once

#include <cstdint>

namespace pyc {

enum class RankState : std::uint32_t {
  kSilent = 0,  ///< its node has not answered
  kNotArrived,  ///< it computes or sleeps
  kElsewhere,   ///< it waits in a call of another collective
  kWaits,       ///< it waits in this collective, for another rank
  kStopped,     ///< its process is stopped (SIGSTOP)
  kGone,        ///< its process has ended
  kArrived,     ///< it has done its part
  kLeft,        ///< it has left, by flush or close
  kComplete,    ///< the round is complete on this rank
};

/// The state of a rank, reported by the rank or by its node's leader.
struct Report {
  RankState state = RankState::kSilent;
  std::uint32_t awaited = 0;   ///< kElsewhere: the id of the collective; kWaits: the rank, or the first of several
  std::uint32_t quiet_ms = 0;  ///< kNotArrived: milliseconds since its last call of this collective
};

}  // namespace pyc
