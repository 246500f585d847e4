// Ranks as threads of one process, connected by mailboxes. Messages may be delayed. For tests under the sanitizers.
#pragma once

#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "transport/in_process.h"

namespace pyc {

/// One transport per rank. A message takes up to `delay` seconds, at random; two ranks exchange messages in order.
std::vector<std::unique_ptr<Transport>> make_loopback(Rank size, Seconds delay, std::uint64_t seed);

}  // namespace pyc
