// Who has mapped whose arena on a device: written down in memory of the host that the ranks of a node share, so that an
// arena is freed when no other rank has it mapped, because each has ended its mappings or has died.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

#include "memory/executor.h"
#include "node/process.h"

namespace pyc {

/// Of a rank.
struct ArenaSeat {
  ProcessId process;
  SharedHandle arena{};
  std::atomic<bool> is_taken{false};    // the fields above are those of a rank
  std::atomic<bool> has_others{false};  // it has the others' arenas mapped
};

class ArenaSeats {
 public:
  /// `seats`, by local rank: the same memory on all ranks.
  ArenaSeats(std::shared_ptr<ArenaSeat> seats, std::size_t ranks, std::size_t local);

  /// Says how others map the own arena.
  void take(const SharedHandle& arena);
  /// Calls map(rank, handle) for every other rank, which is named if that fails. InternalError if one has not taken its
  /// seat.
  template <class Map>
  void map_others(Map map) {
    begin_mapping();
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      if (rank != local_) naming(rank, [&] { map(rank, seat(rank).arena); });
    }
  }
  /// All mappings of this rank have ended.
  void end_mapping() { seat(local_).has_others = false; }
  /// Whether another rank that lives may have the own arena mapped.
  bool is_mapped_by_others() const;

  bool is_gone(std::size_t rank) const { return state_of(seat(rank).process) == ProcessState::kGone; }

 private:
  ArenaSeat& seat(std::size_t rank) const { return seats_.get()[rank]; }
  void begin_mapping();
  /// A DeviceError of `action` says whose arena it was.
  void naming(std::size_t rank, const std::function<void()>& action) const;

  const std::shared_ptr<ArenaSeat> seats_;
  const std::size_t ranks_;
  const std::size_t local_;
};

}  // namespace pyc
