// Active messages between ranks of different nodes. Updates themselves are runs (edges.h).
#pragma once

#include "services/common/mailbox.h"
#include "services/hop/options.h"

namespace pyc::hop {

/// The sender has an update of this iteration for the receiver.
struct Offer {
  Iteration iteration;
};

/// The sender of this accepts that update, and has posted a receive.
struct Accept {
  Iteration iteration;
};

/// The sender of this has no use for that update (section 6.2).
struct Decline {
  Iteration iteration;
};

/// The sender has inserted tokens into its queue for the receiver, and is in this iteration.
struct Tokens {
  Iteration tokens;
  Iteration iteration;
};

/// The sender has removed tokens from the receiver's queue for it. Only TokenQueueCollective sends it.
struct Removed {
  Iteration tokens;
};

/// The sender has reduced this number of iterations (ACK of section 3.3).
struct Reduced {
  Iteration iterations;
};

/// The sender has left. It takes part only in iterations below this one, and sends only answers from now on.
struct Left {
  Iteration iteration;
};

using Messages = Mailbox<Offer, Accept, Decline, Tokens, Removed, Reduced, Left>;

}  // namespace pyc::hop
