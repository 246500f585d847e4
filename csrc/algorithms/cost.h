// What a plan costs under LogGP (Alexandrov et al. 1995), without the plans of all ranks: the chains of messages that
// can be the last to end. An algorithm states its chains beside its plan; one function computes the time of any. That
// the time is the one of the plans is tested (tests/plan/test_cost.py).
#pragma once

#include <cstddef>
#include <vector>

#include "core/types.h"

namespace pyc {

/// Seconds, seconds per byte, and bytes.
struct MessageCosts {
  Seconds latency = 0;          ///< L: the flight of a message
  Seconds overhead = 0;         ///< o: the sender's part, and the receiver's
  Seconds gap_per_byte = 0;     ///< G
  Seconds reduce_per_byte = 0;  ///< of one operand
  double header_bytes = 0;      ///< sent with every message
};

/// A part of a chain: `flights` messages one after the other. A sender may have to begin others before, and a receiver
/// to take others first: `sends` and `receives` count all of them.
struct Leg {
  double flights = 0;
  double sends = 0;
  double receives = 0;
  double elements = 0;   ///< of each message
  bool reduces = false;  ///< what is received
};
using Chain = std::vector<Leg>;
/// Chains that have their end in common.
using Phase = std::vector<Chain>;
/// Phases one after the other; a phase ends with its slowest chain.
using Course = std::vector<Phase>;

Seconds cost_of(const Course& course, const MessageCosts& costs, std::size_t element_bytes);

/// From the root of a PostalTree to the last rank, or from the last rank to the root.
Phase down_a_tree(Rank size, Rank latency, double elements);
Phase up_a_tree(Rank size, Rank latency, double elements);

}  // namespace pyc
