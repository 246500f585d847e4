// All ranks of a partial allreduce in one thread and in virtual time: scripted applications on the engine's own
// protocol code (services/partial_allreduce) over a simulated network (transport/simulated.h). The same script and
// seeds give the same run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/partial_allreduce/partial_allreduce.h"
#include "transport/simulated.h"

namespace pyc {

struct SimulationOptions {
  enum class Ending : std::uint8_t { kFlush, kClose, kNone };  // kFlush: flush, then close

  Rank size = 1;
  Rank ranks_per_node = 1;  ///< consecutive ranks; the last node may have fewer
  // The application of rank r: calls[r] times { work for work[r * max_calls + j] seconds; contribute; wait }.
  std::vector<std::size_t> calls;
  std::size_t max_calls = 0;
  std::vector<Seconds> work;
  std::vector<Ending> ending;
  std::size_t pipeline = 0;  ///< contributions that may be outstanding while the application works
  bool barrier = false;      ///< all ranks begin each call's work together

  PartialAllreduceOptions collective;  ///< int64; count 0: one element per rank
  NetworkCosts network;
  Seconds reduce_per_byte = 0;
  std::uint64_t delivery_seed = 0;
  double payload_factor = 1;  ///< messages cost as much as if they were this many times as long
  bool record_results = true;
  std::uint64_t max_events = 0;  ///< 0: unlimited
};

struct SimulatedCall {
  Rank rank = 0;
  std::int64_t call = 0;  ///< -1: the flush
  Seconds called = 0;
  Seconds done = 0;
  bool late = false;
  RoundInfo info;
};

struct SimulationResult {
  std::vector<SimulatedCall> calls;
  std::vector<std::int64_t> results;  ///< calls x count, if recorded
  std::size_t count = 0;
  RoundNumber rounds = 0;  ///< completed, the most on any rank
  Seconds seconds = 0;
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t events = 0;
  std::string deadlock;  ///< empty, or the ranks that wait or have not closed
};

/// With count 0, call j of rank r contributes 2^j in element r and 0 elsewhere, so that a result shows exactly which
/// contributions it has (up to 62 calls).
SimulationResult simulate(const SimulationOptions& options);

}  // namespace pyc
