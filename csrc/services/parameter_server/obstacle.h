// The work on the weights that a call waits for, if it does not wait for a push.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "core/types.h"
#include "services/parameter_server/pipeline.h"

namespace pyc::server {

struct Obstacle {
  std::function<std::optional<Rank>()> rank;  ///< the rank whose work is in the way
  std::function<void(Seconds)> sleep;         ///< sleeps until it may have advanced; empty: cannot be awaited
};

/// The work before `ticket` in a block.
inline Obstacle behind(Pipeline& pipeline, const Ticket& ticket, const std::size_t& block) {
  return {[&pipeline] { return pipeline.slowest(); },
          [&pipeline, &ticket, &block](Seconds limit) { pipeline.sleep(ticket, block, limit); }};
}

}  // namespace pyc::server
