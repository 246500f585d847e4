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
  static std::size_t bytes(std::size_t ranks) { return ranks * sizeof(ArenaSeat); }
  /// `shared`: `bytes`, the same on all ranks. The first one of the node comes before the others, and makes the seats.
  ArenaSeats(const std::shared_ptr<std::byte>& shared, std::size_t ranks, std::size_t local);

  /// Says how others map the own arena. A rank that is alone shares nothing.
  void take(Executor& executor, std::byte* arena);
  /// Calls map(rank, handle) for every other rank, which is named if that fails. InternalError if one has not taken its
  /// seat.
  template <class Map>
  void map_others(Map map) {
    begin_mapping();
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      if (rank != local_) naming(rank, [&] { map(rank, seat(rank).arena); });
    }
  }
  /// Calls `unmap`, which ends all mappings of this rank, once; then, when no other rank that lives may have the own
  /// arena mapped, `free`, once. Whether it is freed. In a fork nothing ends: all of it is the parent's.
  template <class Unmap, class Free>
  bool release(Unmap unmap, Free free) {
    if (is_released_) return true;
    if (!is_in_own_process()) return false;
    if (!is_unmapped_) {
      unmap();
      end_mapping();
    }
    if (is_mapped_by_others()) return false;
    free();
    return is_released_ = true;
  }
  bool is_released() const { return is_released_; }
  bool is_in_own_process() const;

 private:
  ArenaSeat& seat(std::size_t rank) const { return seats_.get()[rank]; }
  void begin_mapping();
  void end_mapping();
  bool is_mapped_by_others() const;
  /// A DeviceError of `action` says whose arena it was.
  void naming(std::size_t rank, const std::function<void()>& action) const;

  const std::shared_ptr<ArenaSeat> seats_;
  const std::size_t ranks_;
  const std::size_t local_;
  bool is_unmapped_ = false;
  bool is_released_ = false;
};

}  // namespace pyc
