// What messages cost between two ranks, in LogGP's L, o and G, measured with a plan of their own over the engine's
// transport: exchanges of short messages, bursts of short ones, and long messages each way. About 80 messages, and 1
// MiB.
#pragma once

#include "algorithms/cost.h"
#include "engine/engine.h"

namespace pyc {

/// Between rank 0 and another one. On all ranks, collective: the same on all of them. StallError names ranks that do
/// not call it within `timeout`.
MessageCosts measure_messages(Engine& engine, Rank other, Seconds timeout, const Engine::Interrupt& interrupt);

}  // namespace pyc
