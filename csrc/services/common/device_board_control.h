// What the ranks of a device board share, in memory of the host: what is in the buffers of all of them. Under the
// mutex, if nothing else is said. The memory was zeroed before.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "node/event_count.h"
#include "node/robust_mutex.h"
#include "services/common/arena_seats.h"

namespace pyc {

/// Bit i: the rank at i on its node.
using LocalRanks = std::uint64_t;

/// free -> filling -> waiting -> taken -> free: a deposit; it may be filled again while it waits.
/// free -> folding -> result -> free: a round's, in the arena of the rank that begins it.
enum class BufferUse : std::uint8_t { kFree, kFilling, kWaiting, kTaken, kFolding, kResult };

struct DeviceBuffer {
  BufferUse use = BufferUse::kFree;
  std::uint64_t ticket = 0;  ///< of the round: that has taken it, or whose it is
  // Of a round:
  LocalRanks contributors = 0;
  LocalRanks awaited = 0;   ///< by whom it is still to be read
  LocalRanks reading = 0;   ///< whose copies are under way
  std::uint32_t parts = 0;  ///< that it is folded in
  std::uint32_t parts_begun = 0;
  std::uint32_t parts_folded = 0;
};

struct DeviceBoardControl {
  static constexpr std::size_t kMostRanks = 64;
  static constexpr std::size_t kBuffers = 5;  ///< of a rank; with fewer than three a round could not begin
  static constexpr std::size_t kLongestText = 240;

  struct Seat {
    std::uint64_t taken_by = 0;  ///< ticket of the last round that has taken a contribution of the rank
    std::array<DeviceBuffer, kBuffers> buffers;
  };
  struct Failure {
    std::uint32_t local = 0;
    std::array<char, kLongestText> text{};
  };

  RobustMutex mutex;
  EventCount events;                ///< rings after every change
  std::atomic<bool> failed{false};  ///< set when `failure` is
  Failure failure;                  ///< the first
  std::uint64_t newest = 0;         ///< the highest ticket of a result
  LocalRanks left = 0;              ///< who reads no further results
  std::array<Seat, kMostRanks> seats;
  std::array<ArenaSeat, kMostRanks> arenas;  ///< without the mutex
};

}  // namespace pyc
