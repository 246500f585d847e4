// Engines that are made, compare and close, in one thread and in virtual time (engine/bootstrap.h, engine/shutdown.h):
// what ranks conclude, and how many messages each needs, in thousands of delivery orders.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "transport/simulated.h"

namespace pyc {

struct BootstrapScript {
  Rank size = 1;
  Rank ranks_per_node = 1;                      ///< if more, each comparison follows a text handed down within a node
  std::vector<std::vector<std::string>> texts;  ///< of each comparison: by rank
  Seconds pause = 1;                            ///< before each call of a rank, at most
  Seconds patience = 0;                         ///< after which a rank withdraws from a call, at most; 0: it never does
  Seconds answer_time = 0;                      ///< after which it gives up then; 0: it never does
  bool driven_in_calls = false;                 ///< only; else on each arrival
  bool closes = true;                           ///< after the last comparison
  std::size_t strays = 0;                       ///< active messages that ranks send as they close
  NetworkCosts network;
  std::uint64_t seed = 0;
};

struct BootstrapOutcome {
  struct PerRank {
    std::vector<Engine::Texts> comparisons;  ///< those that have ended
    std::uint64_t sent = 0;                  ///< for all comparisons, texts handed down included
    std::uint64_t received = 0;
    std::uint64_t sent_to_close = 0;  ///< strays apart
    std::uint64_t received_to_close = 0;
    bool withdrew = false;  ///< from the comparison after those that have ended; it makes no more calls
    bool closed = false;
  };
  std::vector<PerRank> ranks;
  bool premature = false;  ///< a comparison ended somewhere before every rank had come to it
};

/// Ends when nothing is left to happen. InternalError if a message comes to a rank that has closed, or if a text that
/// is handed down is another one than was given.
BootstrapOutcome simulate_bootstrap(const BootstrapScript& script);

}  // namespace pyc
