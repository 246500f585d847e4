// The work of one push on one shard, done by the worker instead of the server, in one pass from the gradient to the
// weights. The worker offers it and the server grants it.
//
// The worker can leave the work at any time, and another thread continues it: the unused part of the gradient is then
// in the worker's slot. If the server has not claimed the offer, it finds the gradient there; otherwise the work is
// done after the grant.
#pragma once

#include <cstddef>
#include <limits>

#include "memory/memory.h"
#include "services/parameter_server/layout.h"
#include "services/parameter_server/obstacle.h"
#include "services/parameter_server/shard.h"

namespace pyc::server {

class GrantedWork {
 public:
  struct Push {
    Worker worker;
    Clock clock;
  };

  /// The work has been offered. `gradient`, and `out` for the new weights, begin at the shard's first element.
  GrantedWork(Shard& shard, Memory& memory, const Layout& layout, Push push, const std::byte* gradient, std::byte* out)
      : shard_(&shard), memory_(&memory), elements_(layout.elements()), push_(push), gradient_(gradient), out_(out) {}

  /// Whether the server has granted the work, which `version`, `advance` and `obstacle` require.
  bool is_granted();
  /// The version that the update creates; 0 if the gradient is discarded.
  Version version() const { return work_.update == 0 ? 0 : work_.ticket.version; }

  /// Works on at most `most` blocks, until earlier work is in the way. Returns whether all is done.
  bool advance(std::size_t most = std::numeric_limits<std::size_t>::max());
  std::size_t blocks_done() const { return block_; }
  /// The work in the way; valid while this object lives.
  Obstacle obstacle() const { return behind(shard_->pipeline(), work_.ticket, wanted_); }

  /// Copies the rest of the caller's gradient into the slot, and stops writing to `out`.
  void leave();
  /// After `leave`: continues granted work, or takes the offer back and passes the gradient to the server. Returns
  /// whether the work is done or is the server's.
  bool advance_left(std::size_t most);
  /// Whether the server has claimed the work and not granted it. If it has died, the work is never done.
  bool is_stuck() { return !is_granted() && shard_->is_claimed(push_.worker, push_.clock); }
  Shard& shard() const { return *shard_; }

 private:
  bool is_lent() const { return gradient_ != nullptr; }
  const std::byte* weighed(std::size_t block);

  Shard* shard_;
  Memory* memory_;
  Elements elements_;
  Push push_;
  const std::byte* gradient_;  // null: the slot has it
  std::byte* out_;
  bool is_granted_ = false;
  Shard::Work work_{};
  std::size_t block_ = 0;   // blocks done
  std::size_t free_ = 0;    // blocks that no earlier work is in the way of
  std::size_t wanted_ = 0;  // the last block that `advance` asked for
};

}  // namespace pyc::server
