// The cost of a plan under LogGP (Alexandrov et al. 1995), from the chains of messages that can end last instead of the
// plans of all ranks. An algorithm states its chains next to its plan, and one function computes their time.
// tests/plan/test_cost.py compares this time with the plans.
#pragma once

#include <cstddef>
#include <vector>

#include "core/types.h"

namespace pyc {

struct MessageCosts {
  Seconds latency = 0;          ///< L: time of flight of a message
  Seconds overhead = 0;         ///< o: time of the sender, and of the receiver
  Seconds gap_per_byte = 0;     ///< G
  Seconds reduce_per_byte = 0;  ///< of one operand
  double header_bytes = 0;
};

/// Part of a chain: `flights` messages in sequence. `sends` and `receives` also count the other messages that a sender
/// begins, or a receiver takes, before them.
struct Leg {
  double flights = 0;
  double sends = 0;
  double receives = 0;
  double elements = 0;   ///< of each message
  bool reduces = false;  ///< the received data
};
using Chain = std::vector<Leg>;
/// Chains with a common end.
using Phase = std::vector<Chain>;
/// Phases in sequence. A phase ends with its slowest chain.
using Course = std::vector<Phase>;

Seconds cost_of(const Course& course, const MessageCosts& costs, std::size_t element_bytes);

/// From the root of a PostalTree to the last rank, or from the last rank to the root.
Phase down_a_tree(Rank size, Rank latency, double elements);
Phase up_a_tree(Rank size, Rank latency, double elements);

}  // namespace pyc
