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
      mutex_(memory_.take<BoardMutex>(1)),
      events_(memory_.take<EventCount>(1)),
      shared_(memory_.take<Shared>(1)),
      ranks_(memory_, shape_, local),
      records_(memory_, shape_, ranks_, buffers_),
      joint_sum_(memory_, shape_, local),
      round_(memory_, shape_, mutex_, events_, ranks_, records_, buffers_, joint_sum_),
      posts_(memory_, shape_, local),
      reports_(memory_.take_zeroed<Report>(static_cast<std::size_t>(shape.size))),
      buffers_(memory_, shape_) {}

std::size_t Board::bytes(const BoardShape& shape) {
  return Board(nullptr, shape, 0, BoardMemory(nullptr, false)).memory_.used();
}

std::size_t Board::memory_bytes() const {
  const std::size_t unused = shape_.on_device ? 0 : BoardBuffers::count(shape_) - buffers_.most_taken();
  return memory_.used() - unused * BoardBuffers::stride(shape_);
}

Board::Board(const std::shared_ptr<SharedMemory>& memory, const BoardShape& shape, Rank local, bool first)
    : Board(memory, shape, local, BoardMemory(checked(*memory, bytes(shape)), first)) {
  if (first && shape.local_ranks() > 1) events().check();
}

/// Records the first failure. `describe(shared)` writes its cause.
template <class Describe>
void Board::fail_with(Describe describe) {
  if (shared_->is_failing.exchange(true)) return;
  describe(*shared_);
  shared_->failed.store(true, std::memory_order_release);
  events().ring();
}

void Board::fail(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const DeviceError& thrown) {
    fail_device(own_rank(), thrown.what());
  } catch (const std::exception& thrown) {
    fail_with([&](Shared& s) {
      s.failed_at = own_rank();
      if (const auto* const failed = dynamic_cast<const RankFailedError*>(&thrown)) {
        s.kind = Failure::kRank;
        s.dead_count = static_cast<std::uint32_t>(std::min(failed->ranks().size(), std::size(s.dead)));
        std::copy_n(failed->ranks().begin(), s.dead_count, s.dead);
      }
      std::snprintf(s.failure, sizeof s.failure, "%s", thrown.what());
    });
  }
}

void Board::fail_device(Rank rank, std::string_view text) {
  fail_with([&](Shared& s) {
    s.kind = Failure::kDevice;
    s.failed_at = rank;
    s.failure[text.copy(s.failure, sizeof s.failure - 1)] = '\0';
  });
}

std::optional<Board::DeviceFailure> Board::device_failure() const {
  if (!failed() || shared_->kind != Failure::kDevice) return std::nullopt;
  return DeviceFailure{shared_->failed_at, shared_->failure};
}

void Board::throw_failure() const {
  const std::string rank = "rank " + std::to_string(shared_->failed_at);
  if (shared_->kind == Failure::kDevice) throw DeviceError(rank + ": " + shared_->failure);
  const std::string text = rank + ", which exchanges this node's messages with other nodes: " + shared_->failure;
  if (shared_->kind == Failure::kRank)
    throw RankFailedError(text, {shared_->dead, shared_->dead + shared_->dead_count});
  throw TransportError(text);
}

}  // namespace pyc
