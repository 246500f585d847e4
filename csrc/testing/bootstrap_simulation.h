// Engines that are created, compare and close, in one thread and in virtual time (engine/bootstrap.h,
// engine/shutdown.h). Shows the conclusions of ranks, and their numbers of messages, in thousands of delivery orders.
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
  std::vector<std::vector<std::string>> texts;  ///< by comparison and rank
  Seconds pause = 1;                            ///< before each call of a rank, at most
  Seconds patience = 0;                         ///< longest time before a rank withdraws from a call; 0: never
  Seconds answer_time = 0;                      ///< time after which it then gives up; 0: never
  bool driven_in_calls = false;                 ///< drive ranks only in calls, not on each arrival
  bool closes = true;                           ///< after the last comparison
  std::size_t strays = 0;                       ///< active messages that ranks send as they close
  NetworkCosts network;
  std::uint64_t seed = 0;
};

struct BootstrapOutcome {
  struct PerRank {
    std::vector<Engine::Texts> comparisons;  ///< completed ones
    std::uint64_t sent = 0;                  ///< for all comparisons, including texts handed down
    std::uint64_t received = 0;
    std::uint64_t sent_to_close = 0;  ///< without strays
    std::uint64_t received_to_close = 0;
    bool withdrew = false;  ///< from the comparison after the completed ones, with no further calls
    bool closed = false;
  };
  std::vector<PerRank> ranks;
  bool premature = false;  ///< a comparison ended on some rank before every rank had called it
};

/// Throws InternalError if a message reaches a closed rank, or if a wrong text is handed down.
BootstrapOutcome simulate_bootstrap(const BootstrapScript& script);

}  // namespace pyc
