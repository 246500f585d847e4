// What a rank takes along from a partial allreduce that a death has ended, so that the survivors continue in a new one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/types.h"
#include "services/partial_allreduce/round.h"

namespace pyc {

struct Recovered {
  RoundNumber completed = 0;      ///< rounds that have completed on this node
  std::uint64_t handed_over = 0;  ///< contributions of this rank
  std::uint64_t delivered = 0;    ///< sequence number of its newest contribution in a completed round
  std::uint64_t taken = 0;        ///< the same in the round that has not completed here; 0: without this rank
  std::uint64_t missed = 0;       ///< completed rounds that its application has not received
  std::vector<std::byte> sum;     ///< accumulators of their sum; empty under missed="latest", and without contributors
  bool flushed = false;           ///< the flush that this rank has started has completed

  /// The newest completed round.
  struct Newest {
    RoundInfo info;
    bool flush;
    std::vector<std::byte> values;  ///< accumulators; empty without contributors
    std::size_t divisor;
  };
  std::optional<Newest> newest;
};

}  // namespace pyc
