// The queues of a node's ranks in shared memory: the update queue, token queues and standing of each. Neighbors on the
// node use them in place.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "core/nodes.h"
#include "services/hop/options.h"
#include "services/hop/token_queue.h"
#include "services/hop/update_queue.h"

namespace pyc {

/// Numbers that a rank announces. `iteration` and `reduced` only grow; `left` is set once.
struct HopStanding {
  std::atomic<Iteration> iteration{0};
  std::atomic<Iteration> reduced{0};
  std::atomic<Iteration> left{kNeverIteration};
};

class HopBoard {
 public:
  static std::size_t bytes(const HopOptions& options, const Nodes& nodes, Rank rank);
  static std::size_t bytes_of_rank(const HopOptions& options, Rank rank);

  /// `memory` is zeroed and aligned to a page. Constructs the standing of `rank`.
  HopBoard(std::shared_ptr<std::byte> memory, const HopOptions& options, const Nodes& nodes, Rank rank);

  // For ranks of this node.
  HopStanding& standing(Rank rank) const { return *reinterpret_cast<HopStanding*>(start_of(rank)); }
  UpdateQueue& updates(Rank of) { return updates_[nodes_.local_rank_of(of)]; }
  /// TokenQ(of -> sender), where the sender may be on another node.
  TokenQueue tokens(Rank of, Rank sender) const;

 private:
  static constexpr std::size_t kPage = 4096;

  static std::size_t tokens_bytes(const HopOptions& options, Rank rank);
  std::byte* start_of(Rank rank) const { return memory_.get() + starts_[nodes_.local_rank_of(rank)]; }

  std::shared_ptr<std::byte> memory_;
  const HopOptions& options_;
  const Nodes nodes_;
  const Rank rank_;
  std::vector<std::size_t> starts_;   // by local rank
  std::vector<UpdateQueue> updates_;  // by local rank
};

}  // namespace pyc
