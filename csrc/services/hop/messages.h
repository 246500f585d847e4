// What ranks of different nodes say to each other. Updates themselves are no active messages.
#pragma once

#include "services/common/mailbox.h"
#include "services/hop/options.h"

namespace pyc::hop {

/// The sender has an update of this iteration for the receiver.
struct Offer {
  Iteration iteration;
};

/// The sender of this takes that update: it has posted a receive.
struct Accept {
  Iteration iteration;
};

/// The sender of this has no use for that update: section 6.2.
struct Decline {
  Iteration iteration;
};

/// The sender has put so many tokens into its queue for the receiver, and is in this iteration.
struct Tokens {
  Iteration tokens;
  Iteration iteration;
};

/// The sender has taken so many tokens out of the receiver's queue for it: of a token queue by itself.
struct Removed {
  Iteration tokens;
};

/// The sender has reduced so many iterations: ACK of section 3.3.
struct Reduced {
  Iteration iterations;
};

/// The sender has left. It takes part in iterations below this one, and sends nothing more but answers.
struct Left {
  Iteration iteration;
};

using Messages = Mailbox<Offer, Accept, Decline, Tokens, Removed, Reduced, Left>;

}  // namespace pyc::hop
