// What a partial reduce of arrays on a device has there, beside what its groups compute in (device_slots.h): a copy of
// the final weights, and the way of messages. All of it is made at creation.
#pragma once

#include <cstddef>
#include <memory>

#include "memory/executor.h"
#include "services/partial_reduce/device_slots.h"
#include "services/partial_reduce/staged_runs.h"

namespace pyc {

class GroupDevice {
 public:
  /// For values of `bytes`. `sends`: groups may go by messages.
  GroupDevice(std::shared_ptr<Executor> executor, std::size_t bytes, bool sends);
  GroupDevice(const GroupDevice&) = delete;
  GroupDevice& operator=(const GroupDevice&) = delete;

  Executor& executor() { return *executor_; }
  StagedRuns& runs() { return *runs_; }

  /// Of the node's board, which owns them.
  void use(DeviceSlots& slots) { slots_ = &slots; }
  DeviceSlots* slots() { return slots_; }

  /// Copies the final weights, and waits for that: not under the progress lock. Throws DeviceError.
  void keep(const std::byte* values);
  std::byte* kept() { return final_.get(); }

  /// After an error: no further work is queued.
  void give_up();
  /// ... and whether what was queued is done.
  bool has_stopped() { return slots_ == nullptr || slots_->has_stopped(); }
  /// Again and again when no further group will come: until nobody uses what this rank has on its device.
  void release() { is_released_ = slots_ == nullptr || slots_->release(); }
  bool is_released() const { return is_released_; }

 private:
  const std::shared_ptr<Executor> executor_;
  const std::size_t bytes_;
  const ExecutorMemory final_;
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<Event> kept_;
  const std::unique_ptr<StagedRuns> runs_;  // null: all groups are within a node
  DeviceSlots* slots_ = nullptr;            // null: none is
  bool is_released_ = false;
};

}  // namespace pyc
