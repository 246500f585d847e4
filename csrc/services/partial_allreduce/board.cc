#include "services/partial_allreduce/board.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <utility>

#include "core/error.h"
#include "memory/executor.h"

namespace pyc {
namespace {

std::byte* checked(SharedMemory& memory, std::size_t bytes) {
  if (memory.bytes() < bytes) throw InternalError("the board's memory is too small");
  return memory.data();
}

}  // namespace

Board::Board(std::shared_ptr<SharedMemory> owner, const BoardShape& shape, Rank local, BoardMemory memory)
    : owner_(std::move(owner)),
      shape_(shape),
      memory_(memory),
      mutex_(memory_.take<RobustMutex>(1)),
      events_(memory_.take<EventCount>(1)),
      shared_(memory_.take<Shared>(1)),
      ranks_(memory_, shape_, local),
      records_(memory_, shape_, ranks_, buffers_),
      round_(memory_, shape_, mutex_, events_, ranks_, records_, buffers_),
      posts_(memory_, shape_, local),
      reports_(memory_.take_zeroed<Report>(static_cast<std::size_t>(shape.size))),
      buffers_(memory_, shape_) {}

std::size_t Board::bytes(const BoardShape& shape) {
  return Board(nullptr, shape, 0, BoardMemory(nullptr, false)).memory_.used();
}

Board::Board(const std::shared_ptr<SharedMemory>& memory, const BoardShape& shape, Rank local, bool first)
    : Board(memory, shape, local, BoardMemory(checked(*memory, bytes(shape)), first)) {
  if (first && shape.local_ranks() > 1) events().check();
}

void Board::fail(const std::exception_ptr& error) {
  if (shared_->is_failing.exchange(true)) return;
  shared_->failed_at = shape_.ranks[static_cast<std::size_t>(ranks_.own_local_rank())];
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& thrown) {
    if (dynamic_cast<const DeviceError*>(&thrown) != nullptr) shared_->kind = Failure::kDevice;
    const auto* const failed = dynamic_cast<const RankFailedError*>(&thrown);
    if (failed != nullptr) {
      shared_->kind = Failure::kRank;
      shared_->dead_count = static_cast<std::uint32_t>(std::min(failed->ranks().size(), std::size(shared_->dead)));
      std::copy_n(failed->ranks().begin(), shared_->dead_count, shared_->dead);
    }
    std::snprintf(shared_->failure, sizeof shared_->failure, "%s", thrown.what());
  }
  shared_->failed.store(true, std::memory_order_release);
  events().ring();
}

void Board::check_failure() const {
  if (!failed()) return;
  const std::string rank = "rank " + std::to_string(shared_->failed_at);
  if (shared_->kind == Failure::kDevice) throw DeviceError(rank + ": " + shared_->failure);
  const std::string text = rank + ", which exchanges this node's messages with other nodes: " + shared_->failure;
  if (shared_->kind == Failure::kRank)
    throw RankFailedError(text, {shared_->dead, shared_->dead + shared_->dead_count});
  throw TransportError(text);
}

}  // namespace pyc
