// What neighbors say to each other. Between nodes a rank asks for what it takes; what it takes is no active message.
#pragma once

#include <cstdint>

#include "services/common/mailbox.h"

namespace pyc::neighborhood {

/// The sender takes the receiver's values of this step, once they are there.
struct Ask {
  std::uint64_t step;
};

/// The sender has left: it takes part in so many steps. It may still ask for values of these.
struct Left {
  std::uint64_t steps;
};

/// The sender has left, and asks for nothing any more.
struct Done {};

using Messages = Mailbox<Ask, Left, Done>;

}  // namespace pyc::neighborhood
