#include "services/partial_allreduce/communicator_copier.h"

#include <thread>
#include <utility>

#include "core/error.h"

namespace pyc {

void CommunicatorCopier::copy(OpId op, std::byte* to, const std::byte* /*from*/, std::size_t /*bytes*/) {
  if (under_way_) throw InternalError("two reductions of a round at a time");
  under_way_ = op;
  if (!DeviceMemory::is_shared(to)) {
    contributes_ = true;
    return;
  }
  const bool contributes = std::exchange(contributes_, false);
  if (!communicator_ || data_.count == 0) return;
  attempt([&] {
    if (!contributes) memory_.fill_identity(data_.elements, data_.op, to, data_.count);
    reduction_.start(*communicator_, memory_.at(to), data_.count, data_.elements.accumulator, data_.op, {});
  });
}

std::optional<OpId> CommunicatorCopier::take_done() {
  if (!under_way_ || !is_done()) return std::nullopt;
  return std::exchange(under_way_, std::nullopt);
}

bool CommunicatorCopier::is_done() {
  bool is_finished = false;
  const bool is_alive = attempt([&] { is_finished = reduction_.finish(); });
  return is_finished || !is_alive;
}

void CommunicatorCopier::give_up() {
  communicator_.reset();
  reduction_.give_up();
}

void CommunicatorCopier::finish() {
  give_up();
  while (!is_done()) std::this_thread::yield();
}

}  // namespace pyc
