// Device memory and streams of a partial reduce, besides the slots of its board (device_slots.h): a copy of the final
// values, and staged runs between nodes. All are allocated at creation.
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
  /// For data like `most`, weighted if any is. `sends`: groups may use messages, in copies of at least `piece_bytes`.
  GroupDevice(std::shared_ptr<Executor> executor, const GroupData& most, bool sends, std::size_t piece_bytes);
  GroupDevice(const GroupDevice&) = delete;
  GroupDevice& operator=(const GroupDevice&) = delete;

  Executor& executor() { return *executor_; }

  /// For a group that is not on the node's board.
  void start(GroupRuns& runs, std::span<const Rank> members, const GroupData& data, const std::string& algorithm,
             std::uint64_t number) {
    runs_->start(runs, members, data, algorithm, number);
  }
  bool finish(GroupRuns& runs) { return runs_->finish(runs); }

  /// For `GroupRuns::use`; null if no group sends.
  Staging* staging() { return runs_ ? &runs_->staging() : nullptr; }

  bool take_moved() { return runs_ && runs_->take_moved(); }

  /// The board owns them.
  void use(DeviceSlots& slots) { slots_ = &slots; }
  DeviceSlots* slots() { return slots_; }

  /// Copies the final values and waits for the copy; not under the progress lock. Throws DeviceError.
  void keep(const std::byte* values);
  std::byte* kept() { return final_.get(); }

  /// After an error of this rank's device: queues no further work.
  void give_up() {
    if (runs_) runs_->give_up_device();
  }
  bool has_stopped() { return slots_ == nullptr || slots_->has_stopped(); }
  /// Called after the last group, until it returns true because this rank's slot is freed.
  bool release() { return slots_ == nullptr || slots_->release(); }
  bool is_released() const { return slots_ == nullptr || slots_->is_released(); }

 private:
  const std::shared_ptr<Executor> executor_;
  const std::size_t bytes_;
  const ExecutorMemory final_;
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<Event> kept_;
  const std::unique_ptr<StagedRuns> runs_;  // null if all groups are within a node
  DeviceSlots* slots_ = nullptr;            // null if no group is within a node
};

}  // namespace pyc
