// The buffers of a board in the memory of devices, one arena per rank, and when they are freed
// (services/common/arena_seats.h). Owned by a PartialAllreduce, which calls `release` after all work on the board.
#pragma once

#include <cstddef>
#include <memory>

#include "memory/device_memory.h"
#include "services/common/arena_seats.h"
#include "services/partial_allreduce/board_shape.h"

namespace pyc {

class DeviceBuffers {
 public:
  /// Allocates this rank's arena. `local`: its local rank. `seats`: shared memory for ArenaSeats.
  DeviceBuffers(std::shared_ptr<Executor> executor, const BoardShape& shape, std::size_t local,
                const std::shared_ptr<std::byte>& seats);
  /// If other ranks may still have the arena mapped, the driver frees it with the process.
  ~DeviceBuffers();
  DeviceBuffers(const DeviceBuffers&) = delete;
  DeviceBuffers& operator=(const DeviceBuffers&) = delete;

  DeviceMemory& memory() { return memory_; }

  /// Maps the arenas of the other ranks, which must have been allocated.
  void map_others();
  /// The first call ends this rank's mappings. True if no other rank uses this rank's arena, which is freed then.
  bool release();
  bool is_released() const { return seats_.is_released(); }

 private:
  const std::shared_ptr<Executor> executor_;
  ArenaSeats seats_;
  DeviceMemory memory_;
};

}  // namespace pyc
