#include "services/partial_allreduce/board_buffers.h"

#include <limits>
#include <stdexcept>
#include <string>

#include "core/checked.h"
#include "core/error.h"
#include "core/hot.h"
#include "memory/device_memory.h"

namespace pyc {

/// Per rank: a deposit, one taken by a round, one being written, two results that the application reads, one that is
/// copied instead, two kept records; with totals, a total and the records being added to it; if recoverable, the next
/// total. Per node: the records, the sum, and the runs between nodes. On devices the application reads no buffer of the
/// board.
std::size_t BoardBuffers::count(const BoardShape& shape) {
  const std::size_t per_rank =
      (shape.on_device ? 6 : 8) + (shape.keeps_totals ? 1 + shape.records : 0) + (shape.recoverable ? 1 : 0);
  const std::size_t between_nodes = shape.on_device ? 0 : kRunsInFlight;
  std::size_t buffers = checked_product(per_rank, shape.local_ranks()) + shape.records + 1 + between_nodes;
  if (shape.on_device) buffers = round_up(buffers, shape.local_ranks());  // arenas have equal numbers of buffers
  if (buffers > static_cast<std::size_t>(std::numeric_limits<BufferNumber>::max())) {
    throw std::length_error("history: a board cannot number " + std::to_string(buffers) + " buffers");
  }
  return buffers;
}

std::size_t BoardBuffers::stride(const BoardShape& shape) {
  return round_up(checked_product(shape.count, size_of(shape.elements.accumulator)), BoardMemory::kLine);
}

BoardBuffers::BoardBuffers(BoardMemory& memory, const BoardShape& shape)
    : stack_(memory.take<Stack>(1)),
      references_(memory.take<std::uint32_t>(count(shape))),
      free_(memory.take<BufferNumber>(count(shape))),
      stride_(stride(shape)),
      count_(static_cast<std::uint32_t>(count(shape))),
      data_(shape.on_device ? DeviceMemory::shared() : memory.take_pages(checked_product(count(shape), stride_))) {
  if (!memory.constructs()) return;
  // Taken from the end: 0, 1, 2 ... On devices the arenas alternate, so that no single device serves all ranks.
  const std::size_t arenas = shape.on_device ? shape.local_ranks() : 1;
  std::size_t place = stack_->free = static_cast<std::uint32_t>(count(shape));
  for (std::size_t first = 0; first < per_arena(shape, arenas); ++first) {
    for (std::size_t arena = 0; arena < arenas; ++arena) {
      free_[--place] = static_cast<BufferNumber>(arena * per_arena(shape, arenas) + first);
    }
  }
}

PYC_HOT BufferNumber BoardBuffers::take() {
  if (stack_->free == 0) throw InternalError("the board has no free buffer");
  const BufferNumber buffer = free_[--stack_->free];
  const std::uint32_t taken = count_ - stack_->free;
  if (taken > most_taken()) stack_->most_taken.store(taken, std::memory_order_relaxed);
  references_[buffer] = 1;
  return buffer;
}

PYC_HOT void BoardBuffers::release(BufferNumber& buffer) {
  if (buffer == kNoBuffer) return;
  if (--references_[buffer] == 0) free_[stack_->free++] = buffer;
  buffer = kNoBuffer;
}

}  // namespace pyc
