// Measures the cost of messages between two ranks as LogGP's L, o and G. A plan of its own exchanges about 80 messages
// and 1 MiB: short messages, bursts of short messages, and long messages each way.
#pragma once

#include "algorithms/cost.h"
#include "engine/engine.h"

namespace pyc {

/// Between rank 0 and `other`. Collective over all ranks, which all get the same result. StallError names the ranks
/// that do not call it within `timeout`.
MessageCosts measure_messages(Engine& engine, Rank other, Seconds timeout, const Engine::Interrupt& interrupt);

}  // namespace pyc
