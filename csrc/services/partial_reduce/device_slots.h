// Slots in memory of devices, each of which the other ranks of the node have mapped: work is queued on a stream of the
// library's own and polled for, so no call waits, and no stream waits for another rank's.
//
// Totals are folded in the order of members by the arithmetic of the host (memory/functors.inc): float32 and float64
// have the bits that the host's slots give.
#pragma once

#include <memory>
#include <vector>

#include "memory/executor.h"
#include "services/common/arena_seats.h"
#include "services/partial_reduce/group_slots.h"

namespace pyc {

class DeviceSlots final : public GroupSlots {
 public:
  /// Longer values go through the slots piece by piece, which bounds the memory.
  static constexpr std::size_t kLongestSlot = std::size_t{256} << 20U;
  static constexpr std::size_t kMostRanks = 64;  ///< operands of a kernel

  /// Allocates all that it will ever need. `slot_bytes`: the same on all `ranks`, enough for an element. `seats`: what
  /// the ranks share of ArenaSeats. std::runtime_error, of more than `kMostRanks` too.
  DeviceSlots(Executor& executor, std::size_t ranks, std::size_t local, std::size_t slot_bytes,
              const std::shared_ptr<std::byte>& seats);
  /// Waits for work that is under way. If others may still have the slot mapped, leaves it to the driver, which frees
  /// it with the process.
  ~DeviceSlots() override;
  DeviceSlots(const DeviceSlots&) = delete;
  DeviceSlots& operator=(const DeviceSlots&) = delete;

  /// When those of all ranks are made, and before any is used.
  void map_others();

  void attach(std::size_t, std::byte*) override {}
  std::size_t longest_piece(const GroupData& data) const override;
  void put(const GroupData& piece) override;
  void reduce(const GroupData& piece, const std::vector<std::size_t>& members, std::optional<double> factor,
              std::size_t into, std::size_t first, std::size_t length) override;
  void take(const GroupData& piece, std::size_t from) override;
  bool is_done() override { return done_->reached(); }

  /// When no further call will come, after an error too: whether all work is done.
  bool has_stopped();
  /// The same, and ends this rank's part: true when nobody uses its slot any more, which is freed by that.
  bool release();
  bool is_released() const { return seats_.is_released(); }

 private:
  std::byte* slot(std::size_t local) const { return local == local_ ? own_.get() : others_[local].get(); }

  Executor& executor_;
  const std::size_t local_;
  const std::size_t slot_bytes_;
  ExecutorMemory own_;
  std::vector<ExecutorMemory> others_;  // by local rank
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> done_;  // recorded after all work
  ArenaSeats seats_;
  bool is_used_ = false;
  bool is_marked_ = false;  // done_ is recorded after what a call that failed has queued, too
};

}  // namespace pyc
