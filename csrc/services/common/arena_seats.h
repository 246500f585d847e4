// Records which ranks of a node map each other's device arenas, in host memory that they share. A rank frees its arena
// after every other rank has ended its mappings or has died.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

#include "memory/executor.h"
#include "node/process.h"

namespace pyc {

struct ArenaSeat {
  ProcessId process;
  SharedHandle arena{};
  std::atomic<bool> is_taken{false};    // the fields above are set
  std::atomic<bool> has_others{false};  // this rank has mapped the other arenas
};

class ArenaSeats {
 public:
  static std::size_t bytes(std::size_t ranks) { return ranks * sizeof(ArenaSeat); }
  /// `shared` is the same memory on all ranks. Local rank 0 comes first and constructs the seats.
  ArenaSeats(const std::shared_ptr<std::byte>& shared, std::size_t ranks, std::size_t local);

  /// Publishes the handle of this rank's arena; a single rank shares nothing.
  void take(Executor& executor, std::byte* arena);
  /// Calls map(rank, handle) for every other rank; a DeviceError names the rank. All ranks must have called `take`.
  template <class Map>
  void map_others(Map map) {
    begin_mapping();
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      if (rank != local_) naming(rank, [&] { map(rank, seat(rank).arena); });
    }
  }
  /// Calls `unmap` once to end this rank's mappings, and `free` once when no other living rank maps its arena. Returns
  /// whether the arena is freed. A forked process does nothing, because the parent owns the arena.
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
  /// Adds the rank to a DeviceError of `action`.
  void naming(std::size_t rank, const std::function<void()>& action) const;

  const std::shared_ptr<ArenaSeat> seats_;
  const std::size_t ranks_;
  const std::size_t local_;
  bool is_unmapped_ = false;
  bool is_released_ = false;
};

}  // namespace pyc
