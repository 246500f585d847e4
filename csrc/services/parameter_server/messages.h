// Messages between the ranks of a served parameter server. Gradients and weights travel separately (Transfers).
#pragma once

#include <cstdint>

#include "services/common/mailbox.h"
#include "services/parameter_server/ledger.h"

namespace pyc::server::messages {

/// Worker to coordinator.
struct Push {
  std::uint64_t kind;  // Ledger::Kind
  Version version;
};

/// Worker to coordinator: takes no part until its next push.
struct Leave {};

/// Coordinator to servers, before a Step: parts of its update. Workers `first` to `last` have the same weight.
struct PartsOf {
  std::uint32_t first;
  std::uint32_t last;
  std::uint64_t weight;  // bit pattern of a double
};
struct Parts {
  using Tail = PartsOf;
};

/// Coordinator to servers: the next step (Ledger). `flags`: StepFlag in served.cc.
struct Step {
  std::uint32_t worker;
  std::uint32_t flags;
  Clock clock;
  Version update;
};

/// Releases a worker. The fields are an Outcome.
struct Release {
  Clock clock;
  Version version;
  std::uint64_t staleness;
  std::uint64_t used;
};

/// Reader to server: send weights of `version` or later. In elastic averaging, if `clock` is not 0: send the averaged
/// weights of that push.
struct Pull {
  Version version;
  Clock clock;
};

/// The sender has a gradient (`number`: the push) or weights (`number`: the version) for the receiver. `kind`:
/// Transfers::Kind.
struct Offer {
  std::uint64_t kind;
  std::uint64_t number;
};

/// The sender has posted a receive for the offer.
struct Accept {
  std::uint64_t kind;
};

/// Closed: the sender has closed the server. AllClosed, from the coordinator: every rank has.
struct Closed {};
struct AllClosed {};

/// Asks the coordinator which pushes others wait for. The answer is one or more Awaited, the last one with `final` set.
struct Ask {};
struct Awaited {
  using Tail = std::uint32_t;
  std::uint64_t final;
};

/// The update function of the sender, a server, has thrown: the weights are unusable.
struct Failed {};

/// Asks the coordinator for the ledger's memory. The answer is pieces in order; `first` is a piece's first word.
struct AskCounts {};
struct CountsPiece {
  using Tail = std::uint64_t;
  std::uint64_t first;
};

using Messages = Mailbox<Push, Leave, Parts, Step, Release, Pull, Offer, Accept, Closed, AllClosed, Ask, Awaited,
                         Failed, AskCounts, CountsPiece>;

}  // namespace pyc::server::messages
