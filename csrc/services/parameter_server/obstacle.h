// What a call waits for, if it is not the push of a worker: work of other ranks on the weights, which it comes behind.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "core/types.h"
#include "services/parameter_server/pipeline.h"

namespace pyc::server {

struct Obstacle {
  std::function<std::optional<Rank>()> rank;  ///< whose work holds it up
  std::function<void(Seconds)> sleep;         ///< until that may have gone on; empty: nobody would say so
};

/// A place in a pipeline, before a block.
inline Obstacle behind(Pipeline& pipeline, const Ticket& ticket, const std::size_t& block) {
  return {[&pipeline] { return pipeline.slowest(); },
          [&pipeline, &ticket, &block](Seconds limit) { pipeline.sleep(ticket, block, limit); }};
}

}  // namespace pyc::server
