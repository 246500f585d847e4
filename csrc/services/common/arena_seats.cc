#include "services/common/arena_seats.h"

#include <string>
#include <utility>

#include "core/error.h"

namespace pyc {

ArenaSeats::ArenaSeats(std::shared_ptr<ArenaSeat> seats, std::size_t ranks, std::size_t local)
    : seats_(std::move(seats)), ranks_(ranks), local_(local) {}

void ArenaSeats::take(const SharedHandle& arena) {
  seat(local_).process = ProcessId::own();
  seat(local_).arena = arena;
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

bool ArenaSeats::is_mapped_by_others() const {
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    if (rank != local_ && seat(rank).has_others && !is_gone(rank)) return true;
  }
  return false;
}

}  // namespace pyc
