#include "services/partial_allreduce/device_buffers.h"

#include <algorithm>
#include <utility>

#include "core/checked.h"
#include "services/partial_allreduce/board_buffers.h"
#include "services/partial_allreduce/board_memory.h"

namespace pyc {
namespace {

DeviceMemory::Shape memory_for(const BoardShape& shape) {
  const std::size_t stride = BoardBuffers::stride(shape);
  const std::size_t buffers = BoardBuffers::per_arena(shape, shape.local_ranks());
  return {.elements = shape.elements,
          .op = shape.op,
          .buffer_bytes = shape.buffer_bytes(),
          .arena_bytes = std::max(checked_product(buffers, stride), BoardMemory::kLine),
          .ranks = shape.local_ranks()};
}

}  // namespace

std::size_t DeviceBuffers::bytes(const BoardShape& shape) { return shape.local_ranks() * sizeof(ArenaSeat); }

DeviceBuffers::DeviceBuffers(std::shared_ptr<Executor> executor, const BoardShape& shape, std::size_t local,
                             const std::shared_ptr<std::byte>& shared, bool first)
    : executor_(std::move(executor)),
      seats_({shared, BoardMemory(shared.get(), first).take<ArenaSeat>(shape.local_ranks())}, shape.local_ranks(),
             local),
      memory_(*executor_, memory_for(shape), local) {
  seats_.take(shape.local_ranks() > 1 ? memory_.share() : SharedHandle{});
}

DeviceBuffers::~DeviceBuffers() {
  if (!release()) memory_.abandon();
}

void DeviceBuffers::attach() {
  seats_.map_others([this](std::size_t rank, const SharedHandle& arena) { memory_.attach(rank, arena); });
}

bool DeviceBuffers::release() {
  if (is_released_) return true;
  if (!std::exchange(is_detached_, true)) {
    memory_.detach();
    seats_.end_mapping();
  }
  if (seats_.is_mapped_by_others()) return false;
  memory_.free();
  return is_released_ = true;
}

}  // namespace pyc
