#include "services/common/arena_seats.h"

#include <unistd.h>

#include <memory>
#include <string>

#include "core/error.h"

namespace pyc {

ArenaSeats::ArenaSeats(const std::shared_ptr<std::byte>& shared, std::size_t ranks, std::size_t local)
    : seats_(shared, reinterpret_cast<ArenaSeat*>(shared.get())), ranks_(ranks), local_(local) {
  if (local == 0) std::uninitialized_default_construct_n(seats_.get(), ranks);
  seat(local).process = ProcessId::own();
}

void ArenaSeats::take(Executor& executor, std::byte* arena) {
  if (ranks_ > 1) seat(local_).arena = executor.share(arena);
  seat(local_).is_taken = true;
}

void ArenaSeats::begin_mapping() {
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    if (!seat(rank).is_taken) throw InternalError("arenas are mapped before those of all ranks are made");
  }
  seat(local_).has_others = true;
}

void ArenaSeats::naming(std::size_t rank, const std::function<void()>& action) const {
  try {
    action();
  } catch (const DeviceError& error) {
    throw DeviceError(std::string(error.what()) + "; it was the memory of local rank " + std::to_string(rank));
  }
}

void ArenaSeats::end_mapping() {
  seat(local_).has_others = false;
  is_unmapped_ = true;
}

bool ArenaSeats::is_mapped_by_others() const {
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    if (rank == local_ || !seat(rank).has_others) continue;
    if (state_of(seat(rank).process) != ProcessState::kGone) return true;
  }
  return false;
}

bool ArenaSeats::is_in_own_process() const { return seat(local_).process.number == getpid(); }

}  // namespace pyc
