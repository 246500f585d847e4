// How a rank stands to a round that does not complete: what the text of a StallError is made of.
#pragma once

#include <cstdint>

namespace pyc {

enum class Standing : std::uint8_t {
  kSilent = 0,  ///< its node has not answered
  kNotArrived,  ///< it computes, or sleeps
  kElsewhere,   ///< it waits in a call of another collective
  kStopped,     ///< its process is stopped (SIGSTOP)
  kGone,        ///< its process has ended
  kArrived,     ///< it has done its part
  kLeft,        ///< by flush or close
  kComplete,    ///< the round is complete there
};

struct Report {
  Standing standing = Standing::kSilent;
  std::uint32_t collective = 0;  ///< kElsewhere: in which
  std::uint32_t quiet_ms = 0;    ///< kNotArrived: since its last call of this collective
};

}  // namespace pyc
