// The work of one push on one shard, which its worker does in the server's stead: one pass from the gradient to the
// weights. The worker offers it, the server says when.
//
// It can be left at any time, and gone on with by another thread: what is not used of the gradient then lies in the
// worker's slot. If it was not granted yet, the server finds it there, or grants it after all.
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

  /// It has been offered. `gradient`, and `out` for the new weights, are of the shard.
  GrantedWork(Shard& shard, Memory& memory, const Layout& layout, Push push, const std::byte* gradient, std::byte* out)
      : shard_(&shard), memory_(&memory), elements_(layout.elements()), push_(push), gradient_(gradient), out_(out) {}

  /// Whether the server has said so.
  bool is_granted();
  /// When it is granted: the version that it makes; 0: none, the gradient is discarded.
  Version version() const { return work_.update == 0 ? 0 : work_.ticket.version; }

  /// When it is granted: goes on for as long as nobody is in the way, by `most` blocks. Whether it is done.
  bool advance(std::size_t most = std::numeric_limits<std::size_t>::max());
  std::size_t blocks_done() const { return block_; }
  /// When it is granted: what it waits for; valid as long as this.
  Obstacle obstacle() const { return behind(shard_->pipeline(), work_.ticket, wanted_); }

  /// What is lent goes back: the rest of the gradient is copied, and no weights are given.
  void leave();
  /// When it is left: takes it up if it is granted, or gives it to the server. Whether the server has it, or it is
  /// done.
  bool advance_left(std::size_t most);

 private:
  bool is_lent() const { return gradient_ != nullptr; }
  const std::byte* weighed(std::size_t block);

  Shard* shard_;
  Memory* memory_;
  Elements elements_;
  Push push_;
  const std::byte* gradient_;  // null: it lies in the slot
  std::byte* out_;
  bool is_granted_ = false;
  Shard::Work work_{};
  std::size_t block_ = 0;   // all before it is done
  std::size_t free_ = 0;    // nobody is in the way before it
  std::size_t wanted_ = 0;  // that nobody shall be in the way of
};

}  // namespace pyc::server
