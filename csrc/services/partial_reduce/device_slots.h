// Slots in device memory, which the other ranks of the node map. Work is queued on a stream of the library and polled,
// so no call waits, and no stream waits for another rank's stream. Totals are folded in the order of members with the
// arithmetic of the host (memory/functors.inc), so float32 and float64 have the same bits as in host slots.
#pragma once

#include <memory>
#include <vector>

#include "memory/executor.h"
#include "services/common/arena_seats.h"
#include "services/partial_reduce/group_slots.h"

namespace pyc {

class DeviceSlots final : public GroupSlots {
 public:
  /// Limits the memory; longer values pass in pieces.
  static constexpr std::size_t kLongestSlot = std::size_t{256} << 20U;
  static constexpr std::size_t kMostRanks = 64;  ///< operands of a kernel

  /// Allocates all memory. `slot_bytes` is the same on all `ranks`, and enough for an element. `seats` is the memory of
  /// ArenaSeats. Throws std::runtime_error, also for more than `kMostRanks` ranks.
  DeviceSlots(Executor& executor, std::size_t ranks, std::size_t local, std::size_t slot_bytes,
              const std::shared_ptr<std::byte>& seats);
  /// Waits for pending work. If other ranks may still map the slot, the driver frees it at the end of the process.
  ~DeviceSlots() override;
  DeviceSlots(const DeviceSlots&) = delete;
  DeviceSlots& operator=(const DeviceSlots&) = delete;

  /// After all ranks have made their slots, and before any is used.
  void map_others();

  void attach(std::size_t, std::byte*) override {}
  std::size_t longest_piece(const GroupData& data) const override;
  void put(const GroupData& piece) override;
  void reduce(const GroupData& piece, const std::vector<std::size_t>& members, std::optional<double> factor,
              std::size_t into, std::size_t first, std::size_t length) override;
  void take(const GroupData& piece, std::size_t from) override;
  bool is_done() override { return done_->reached(); }

  /// Whether all work is done, also after an error. No work may follow.
  bool has_stopped();
  /// Once all work is done, ends this rank's mappings, and frees its slot when no other rank uses it. True if freed.
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
  bool is_marked_ = false;  // done_ is recorded after the work of a failed call too
};

}  // namespace pyc
