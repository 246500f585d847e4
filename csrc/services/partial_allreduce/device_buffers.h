// The buffers of a board on the devices of a node's ranks, and how they end (services/common/arena_seats.h). Owned by a
// PartialAllreduce, which sees to it that `release` comes after all work on the board.
#pragma once

#include <cstddef>
#include <memory>

#include "memory/device_memory.h"
#include "services/common/arena_seats.h"
#include "services/partial_allreduce/board_shape.h"

namespace pyc {

class DeviceBuffers {
 public:
  /// Of the rank at `local`; `seats`: what the ranks share of ArenaSeats. Allocates this rank's arena.
  DeviceBuffers(std::shared_ptr<Executor> executor, const BoardShape& shape, std::size_t local,
                const std::shared_ptr<std::byte>& seats);
  /// If others may still have the arena mapped, leaves it to the driver, which frees it with the process.
  ~DeviceBuffers();
  DeviceBuffers(const DeviceBuffers&) = delete;
  DeviceBuffers& operator=(const DeviceBuffers&) = delete;

  DeviceMemory& memory() { return memory_; }

  /// Maps the arenas of all others, which are made.
  void map_others();
  /// Ends this rank's part, at first; then says whether nobody uses its arena any more, which is freed by that.
  bool release();
  bool is_released() const { return seats_.is_released(); }

 private:
  const std::shared_ptr<Executor> executor_;
  ArenaSeats seats_;
  DeviceMemory memory_;
};

}  // namespace pyc
