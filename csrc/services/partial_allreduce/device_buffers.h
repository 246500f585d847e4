// The buffers of a board on the devices of a node's ranks, and how they end: who has mapped whose arena stands in
// memory of the host that the ranks share.
//
// An arena is freed when no other rank has it mapped: each has ended its mappings, or has died. Owned by a
// PartialAllreduce, which sees to it that `release` comes after all work on the board.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "memory/device_memory.h"
#include "node/process.h"
#include "services/partial_allreduce/board_shape.h"

namespace pyc {

class DeviceBuffers {
 public:
  /// Of what the ranks share of this.
  static std::size_t bytes(const BoardShape& shape);

  /// Of the rank at `local`; `first`: constructs what is shared. Allocates this rank's arena.
  DeviceBuffers(std::shared_ptr<Executor> executor, const BoardShape& shape, std::size_t local,
                const std::shared_ptr<std::byte>& shared, bool first);
  /// If others may still have the arena mapped, leaves it to the driver, which frees it with the process.
  ~DeviceBuffers();
  DeviceBuffers(const DeviceBuffers&) = delete;
  DeviceBuffers& operator=(const DeviceBuffers&) = delete;

  DeviceMemory& memory() { return memory_; }

  /// Maps the arenas of all others, which are made.
  void attach();
  /// Ends this rank's part, at first; then says whether nobody uses its arena any more, which is freed by that.
  bool release();
  bool is_released() const { return is_released_; }

 private:
  struct Seat {
    ProcessId process;
    SharedHandle arena{};
    std::atomic<bool> has_others{false};  // it has the others' arenas mapped
  };

  Seat& seat(std::size_t rank) const { return seats_.get()[rank]; }
  bool is_used_by_others() const;

  const std::shared_ptr<Executor> executor_;
  const std::size_t ranks_;
  const std::size_t local_;
  const std::shared_ptr<Seat> seats_;  // by local rank
  DeviceMemory memory_;
  bool is_detached_ = false;
  bool is_released_ = false;
};

}  // namespace pyc
