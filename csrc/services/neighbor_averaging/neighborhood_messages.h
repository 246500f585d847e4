// Messages between neighbors. Values travel separately (NeighborhoodEdges).
#pragma once

#include <cstdint>

#include "services/common/mailbox.h"

namespace pyc::neighborhood {

/// The sender takes the receiver's values of this step, once they exist.
struct Ask {
  std::uint64_t step;
};

/// The sender has left after so many steps. It may still ask for values of these.
struct Left {
  std::uint64_t steps;
};

/// The sender has left, and asks for nothing from now on.
struct Done {};

using Messages = Mailbox<Ask, Left, Done>;

}  // namespace pyc::neighborhood
