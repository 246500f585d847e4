// Ranks as threads of one process, joined by mailboxes; a message may be delayed. For tests under the sanitizers.
#pragma once

#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "transport/in_process.h"

namespace pyc {

/// One transport per rank. Every message takes a random time up to `delay` seconds; messages between two ranks stay in
/// order.
std::vector<std::unique_ptr<Transport>> make_loopback(Rank size, Seconds delay, std::uint64_t seed);

}  // namespace pyc
