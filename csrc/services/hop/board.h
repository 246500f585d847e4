// The queues of the ranks of one node, in memory that they share: each rank's update queue, its token queues, and what
// it says of itself. A neighbor of the node writes to them and takes out of them where they are.
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

/// What a rank says of itself. It only grows.
struct HopStanding {
  std::atomic<Iteration> iteration{0};
  std::atomic<Iteration> reduced{0};
  std::atomic<Iteration> left{kNeverIteration};
};

class HopBoard {
 public:
  /// Of all ranks of the node of `rank`.
  static std::size_t bytes(const HopOptions& options, const Nodes& nodes, Rank rank);
  /// The part of one rank.
  static std::size_t bytes_of_rank(const HopOptions& options, Rank rank);

  /// Of one of them. `memory`: zeroed, aligned to a page.
  HopBoard(std::shared_ptr<std::byte> memory, const HopOptions& options, const Nodes& nodes, Rank rank);

  // By rank, of this node.
  HopStanding& standing(Rank rank) const { return *reinterpret_cast<HopStanding*>(start_of(rank)); }
  UpdateQueue& updates(Rank of) { return updates_[nodes_.local_rank_of(of)]; }
  /// TokenQ(of -> sender). The sender may be of another node.
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
