// The data that a rank takes from a partial allreduce that a death has ended, to continue in a new one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/types.h"
#include "services/partial_allreduce/round.h"

namespace pyc {

struct RecoveryState {
  /// Accumulators, to be divided; empty without contributors.
  struct Values {
    std::vector<std::byte> data;
    std::size_t divisor = 1;
  };
  struct Newest {
    RoundInfo info;
    bool flush = false;
    Values result;
  };

  RoundNumber completed = 0;         ///< rounds that have completed on this node
  std::optional<Newest> newest;      ///< of these
  std::uint64_t contributions = 0;   ///< of this rank
  std::uint64_t delivered = 0;       ///< sequence number of its newest contribution in a completed round
  std::uint64_t taken = 0;           ///< the same in the round that has not completed here; 0: without this rank
  std::uint64_t lacking = 0;         ///< consecutive rounds without its data
  std::uint64_t missed = 0;          ///< completed rounds that its application has not received
  Values sum;                        ///< of these rounds; empty under missed="latest"
  std::optional<RoundInfo> flushed;  ///< the round of the flush that it has started, if that has completed
};

}  // namespace pyc
