// How a rank stands to a round that does not complete: what the text of a StallError is made of.
#pragma once

#include <cstdint>

namespace pyc {

enum class RankState : std::uint32_t {
  kSilent = 0,  ///< its node has not answered
  kNotArrived,  ///< it computes, or sleeps
  kElsewhere,   ///< it waits in a call of another collective
  kWaits,       ///< it waits in this one, for another rank
  kStopped,     ///< its process is stopped (SIGSTOP)
  kGone,        ///< its process has ended
  kArrived,     ///< it has done its part
  kLeft,        ///< by flush or close
  kComplete,    ///< the round is complete there
};

/// What the rank, or its node's leader, says of it.
struct Report {
  RankState state = RankState::kSilent;
  std::uint32_t awaited = 0;   ///< kElsewhere: the id of the collective; kWaits: the rank, or the first of several
  std::uint32_t quiet_ms = 0;  ///< kNotArrived: since its last call of this collective
};

}  // namespace pyc
