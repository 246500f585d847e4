// What ranks say to each other where servers serve. Gradients and weights themselves are no active messages.
#pragma once

#include <cstdint>

#include "services/common/mailbox.h"
#include "services/parameter_server/ledger.h"

namespace pyc::server::messages {

/// To the coordinator: the sender pushes.
struct Push {
  std::uint64_t kind;  // Ledger::Kind
  Version version;
};

/// To the coordinator: the sender leaves, until it pushes again.
struct Leave {};

/// To servers: parts of the update of the next Step: workers from `first` to `last`, of one weight.
struct PartsOf {
  std::uint32_t first;
  std::uint32_t last;
  std::uint64_t weight;  // the bits of a double
};
struct Parts {
  using Tail = PartsOf;
};

/// To servers: what they do next.
struct Step {
  std::uint32_t worker;
  std::uint32_t flags;
  Clock clock;
  Version update;
};

/// To a worker: it may go on.
struct Release {
  Clock clock;
  Version version;
  std::uint64_t staleness;
  std::uint64_t used;
};

/// To a server: the sender wants its weights, of this version or a later one; if `clock` is not 0, what elastic
/// averaging has made of that push.
struct Pull {
  Version version;
  Clock clock;
};

/// The sender has a gradient or weights for the receiver (Transfers::Kind); `number` is the push, or the version.
struct Offer {
  std::uint64_t kind;
  std::uint64_t number;
};

/// The sender takes them: it has posted a receive.
struct Accept {
  std::uint64_t kind;
};

/// To the coordinator: the sender has closed it. From it: all have.
struct Closed {};
struct AllClosed {};

/// To the coordinator: whose pushes are waited for? Answered by some of them, and last by one that is final.
struct Ask {};
struct Awaited {
  using Tail = std::uint32_t;
  std::uint64_t final;
};

/// The function of the sender, a server, has thrown: the weights are unusable.
struct Failed {};

/// To the coordinator: what has been counted? Answered in pieces, in order.
struct AskCounts {};
struct CountsPiece {
  using Tail = std::uint64_t;
  std::uint64_t first;
};

using Messages = Mailbox<Push, Leave, Parts, Step, Release, Pull, Offer, Accept, Closed, AllClosed, Ask, Awaited,
                         Failed, AskCounts, CountsPiece>;

}  // namespace pyc::server::messages
