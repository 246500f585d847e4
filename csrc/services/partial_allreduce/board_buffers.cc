#include "services/partial_allreduce/board_buffers.h"

#include <limits>
#include <stdexcept>
#include <string>

#include "core/checked.h"
#include "core/error.h"
#include "hot/hot.h"

namespace pyc {
namespace {

/// Of each rank: a deposit, one that a round has taken, one being written, two results that the application looks at
/// and one that it gets instead, two that are kept for it; a total, and the records that it adds up. Then the records,
/// the sum being reduced, and what goes between the nodes.
std::size_t count_for(const BoardShape& shape) {
  const std::size_t per_rank = 8 + (shape.keeps_totals ? 1 + shape.records : 0);
  const std::size_t buffers = checked_product(per_rank, shape.local_ranks()) + shape.records + 1 + kRunsInFlight;
  if (buffers > static_cast<std::size_t>(std::numeric_limits<BufferNumber>::max())) {
    throw std::length_error("history: a board cannot number " + std::to_string(buffers) + " buffers");
  }
  return buffers;
}

std::size_t stride_for(const BoardShape& shape) {
  return round_up(checked_product(shape.count, size_of(shape.elements.accumulator)), BoardMemory::kLine);
}

}  // namespace

BoardBuffers::BoardBuffers(BoardMemory& memory, const BoardShape& shape)
    : stack_(memory.take<Stack>(1)),
      references_(memory.take<std::uint32_t>(count_for(shape))),
      free_(memory.take<BufferNumber>(count_for(shape))),
      stride_(stride_for(shape)),
      data_(memory.take_pages(checked_product(count_for(shape), stride_))) {
  if (!memory.constructs()) return;
  stack_->free = static_cast<std::uint32_t>(count_for(shape));
  for (std::uint32_t i = 0; i < stack_->free; ++i) free_[i] = static_cast<BufferNumber>(stack_->free - 1 - i);
}

PYC_HOT BufferNumber BoardBuffers::take() {
  if (stack_->free == 0) throw InternalError("the board has no free buffer");
  const BufferNumber buffer = free_[--stack_->free];
  references_[buffer] = 1;
  return buffer;
}

PYC_HOT void BoardBuffers::release(BufferNumber& buffer) {
  if (buffer == kNoBuffer) return;
  if (--references_[buffer] == 0) free_[stack_->free++] = buffer;
  buffer = kNoBuffer;
}

}  // namespace pyc
