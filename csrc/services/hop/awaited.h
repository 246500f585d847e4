// What a call of one rank waits for.
#pragma once

#include <cstdint>

#include "services/hop/options.h"

namespace pyc {

struct HopAwaited {
  enum class What : std::uint8_t {
    kUpdate,     ///< of that iteration, or a later one under bounded staleness
    kAnyUpdate,  ///< of whatever iteration
    kToken,      ///< to enter that iteration
    kAnyToken,
    kAck,       ///< of that iteration
    kTransfer,  ///< of an update of that iteration or an earlier one, to end
    kRoom,      ///< in its queue, for the update of that iteration
  };
  Rank rank;
  What what;
  Iteration iteration;
};

}  // namespace pyc
