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
  const std::size_t buffers = (BoardBuffers::count(shape) + shape.local_ranks() - 1) / shape.local_ranks();
  return {.elements = shape.elements,
          .op = shape.op,
          .buffer_bytes = shape.buffer_bytes(),
          .arena_bytes = std::max(checked_product(buffers, stride), BoardMemory::kLine),
          .ranks = shape.local_ranks()};
}

}  // namespace

std::size_t DeviceBuffers::bytes(const BoardShape& shape) { return shape.local_ranks() * sizeof(Seat); }

DeviceBuffers::DeviceBuffers(std::shared_ptr<Executor> executor, const BoardShape& shape, std::size_t local,
                             const std::shared_ptr<std::byte>& shared, bool first)
    : executor_(std::move(executor)),
      ranks_(shape.local_ranks()),
      local_(local),
      seats_(shared, BoardMemory(shared.get(), first).take<Seat>(ranks_)),
      memory_(*executor_, memory_for(shape), local) {
  seat(local_).process = ProcessId::own();
  seat(local_).arena = memory_.share();
}

DeviceBuffers::~DeviceBuffers() {
  if (!release()) memory_.abandon();
}

void DeviceBuffers::attach() {
  seat(local_).has_others = true;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    if (rank != local_) memory_.attach(rank, seat(rank).arena);
  }
}

bool DeviceBuffers::release() {
  if (is_released_) return true;
  if (!std::exchange(is_detached_, true)) {
    memory_.detach();
    seat(local_).has_others = false;
  }
  if (is_used_by_others()) return false;
  memory_.free();
  return is_released_ = true;
}

bool DeviceBuffers::is_used_by_others() const {
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    const bool uses = rank != local_ && seat(rank).has_others;
    if (uses && state_of(seat(rank).process) != ProcessState::kGone) return true;
  }
  return false;
}

}  // namespace pyc
