// What a partial reduce of arrays on a device has there, beside what its groups compute in (device_slots.h): a copy of
// the final weights, and the way between nodes, through the host. All of it is made at creation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "memory/executor.h"
#include "services/partial_reduce/device_slots.h"
#include "services/partial_reduce/staged_runs.h"

namespace pyc {

class GroupDevice {
 public:
  /// For data as `most`, which has a weight if any has. `sends`: groups may go by messages, copied to the host in
  /// pieces of `piece_bytes` at least.
  GroupDevice(std::shared_ptr<Executor> executor, const GroupData& most, bool sends, std::size_t piece_bytes);
  GroupDevice(const GroupDevice&) = delete;
  GroupDevice& operator=(const GroupDevice&) = delete;

  Executor& executor() { return *executor_; }

  /// A group that does not meet on the node's board: as `StagedRuns::start` and `finish`.
  void start(GroupRuns& runs, std::span<const Rank> members, const GroupData& data, const std::string& algorithm,
             std::uint64_t number) {
    runs_->start(runs, members, data, algorithm, number);
  }
  bool finish(GroupRuns& runs) { return runs_->finish(runs); }

  /// For `GroupRuns::use`; null if none sends.
  Staging* staging() { return runs_ ? &runs_->staging() : nullptr; }

  /// As `StagedRuns::take_moved`.
  bool take_moved() { return runs_ && runs_->take_moved(); }

  /// Of the node's board, which owns them.
  void use(DeviceSlots& slots) { slots_ = &slots; }
  DeviceSlots* slots() { return slots_; }

  /// Copies the final weights, and waits for that: not under the progress lock. Throws DeviceError.
  void keep(const std::byte* values);
  std::byte* kept() { return final_.get(); }

  /// After an error of this rank's device: no further work is queued.
  void give_up() {
    if (runs_) runs_->give_up_device();
  }
  /// ... and whether what was queued is done.
  bool has_stopped() { return slots_ == nullptr || slots_->has_stopped(); }
  /// Again and again when no further group will come: until nobody uses what this rank has on its device.
  bool release() { return slots_ == nullptr || slots_->release(); }
  bool is_released() const { return slots_ == nullptr || slots_->is_released(); }

 private:
  const std::shared_ptr<Executor> executor_;
  const std::size_t bytes_;
  const ExecutorMemory final_;
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<Event> kept_;
  const std::unique_ptr<StagedRuns> runs_;  // null: all groups are within a node
  DeviceSlots* slots_ = nullptr;            // null: none is
};

}  // namespace pyc
