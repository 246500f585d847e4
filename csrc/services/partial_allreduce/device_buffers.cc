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

DeviceBuffers::DeviceBuffers(std::shared_ptr<Executor> executor, const BoardShape& shape, std::size_t local,
                             const std::shared_ptr<std::byte>& seats)
    : executor_(std::move(executor)),
      seats_(seats, shape.local_ranks(), local),
      memory_(*executor_, memory_for(shape), local) {
  seats_.take(*executor_, memory_.arena());
}

DeviceBuffers::~DeviceBuffers() {
  if (!release()) memory_.abandon();
}

void DeviceBuffers::map_others() {
  seats_.map_others([this](std::size_t rank, const SharedHandle& arena) { memory_.attach(rank, arena); });
}

bool DeviceBuffers::release() {
  return seats_.release([this] { memory_.detach(); }, [this] { memory_.free(); });
}

}  // namespace pyc
