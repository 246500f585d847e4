#include "services/partial_reduce/device_slots.h"

#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace pyc {
namespace {

std::size_t checked(std::size_t ranks) {
  if (ranks <= DeviceSlots::kMostRanks) return ranks;
  throw std::runtime_error("on CUDA devices expected at most " + std::to_string(DeviceSlots::kMostRanks) +
                           " ranks of a node, got " + std::to_string(ranks));
}

}  // namespace

DeviceSlots::DeviceSlots(Executor& executor, std::size_t ranks, std::size_t local, std::size_t slot_bytes,
                         const std::shared_ptr<std::byte>& seats)
    : executor_(executor),
      local_(local),
      slot_bytes_(slot_bytes),
      own_(executor.allocate_shared(slot_bytes)),
      others_(checked(ranks)),
      stream_(executor.new_stream()),
      done_(executor.new_event()),
      seats_(seats, ranks, local) {
  seats_.take(executor, own_.get());
}

DeviceSlots::~DeviceSlots() {
  while (seats_.is_in_own_process() && !has_stopped()) std::this_thread::yield();
  if (release()) return;
  static_cast<void>(own_.release());
  for (ExecutorMemory& other : others_) static_cast<void>(other.release());
}

void DeviceSlots::map_others() {
  seats_.map_others([this](std::size_t rank, const SharedHandle& arena) { others_[rank] = executor_.map(arena); });
}

std::size_t DeviceSlots::longest_piece(const GroupData& data) const {
  return slot_bytes_ / size_of(data.elements().accumulator);
}

void DeviceSlots::put(const GroupData& piece) {
  is_used_ = true;
  load_values(*stream_, piece, own_.get());
  stream_->record(*done_);
}

void DeviceSlots::reduce(const GroupData& piece, const std::vector<std::size_t>& members, std::optional<double> factor,
                         std::size_t into, std::size_t first, std::size_t length) {
  const Elements partial{piece.elements().accumulator, piece.elements().accumulator};
  const std::size_t offset = first * size_of(partial.type);
  is_used_ = true;
  std::vector<const std::byte*> terms;
  for (const std::size_t member : members) terms.push_back(slot(member) + offset);
  std::byte* const total = slot(into) + offset;
  const std::size_t divisor = piece.op == ReduceOp::kAvg && !factor ? members.size() : 1;
  stream_->fold(partial, piece.op, {&total, 1}, terms, length, divisor);
  if (factor) scale(*stream_, partial.type, total, *factor, length);
  stream_->record(*done_);
}

void DeviceSlots::take(const GroupData& piece, std::size_t from) {
  stream_->store(piece.elements(), piece.values, slot(from), piece.count, 1);
  stream_->record(*done_);
}

bool DeviceSlots::has_stopped() {
  if (!is_used_) return true;
  try {
    if (!std::exchange(is_marked_, true)) stream_->record(*done_);
    return done_->reached();
  } catch (const DeviceError&) {  // a failed device does nothing more
    return true;
  }
}

bool DeviceSlots::release() {
  const auto unmap = [this] {
    for (ExecutorMemory& other : others_) other.reset();
  };
  return seats_.is_released() ||
         (seats_.is_in_own_process() && has_stopped() && seats_.release(unmap, [this] { own_.reset(); }));
}

}  // namespace pyc
