// P-Reduces by messages of values on a device: through memory of the host from which copies are fast, since the MPI
// libraries that we build against take no addresses of a device. The values are copied there, the run works on them
// there (group_runs.h), and the result is copied back. No call waits: what is queued is polled for.
//
// Under the engine's progress lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memory/executor.h"
#include "services/partial_reduce/group_runs.h"

namespace pyc {

class StagedRuns {
 public:
  /// Allocates all that it will need on the device, and `bytes` for the values on the host.
  StagedRuns(Executor& executor, std::size_t bytes);
  /// Waits for a copy that is under way.
  ~StagedRuns();
  StagedRuns(const StagedRuns&) = delete;
  StagedRuns& operator=(const StagedRuns&) = delete;

  /// As `GroupRuns::prepare` and `start`; `data.values` is on the device.
  void start(GroupRuns& runs, std::span<const Rank> members, const GroupData& data, const std::string& algorithm,
             std::uint64_t number);
  /// As `GroupRuns::finish`. Throws DeviceError; the P-Reduce goes on then without this rank's device, if `finish` is
  /// called again after `give_up_device`.
  bool finish(GroupRuns& runs);
  /// Copies nothing any more: what the other members wait for is done without values of this rank.
  void give_up_device() { has_device_ = false; }

 private:
  enum class Stage : std::uint8_t { kFetching, kRunning, kPutting, kEnded };

  void copy(std::byte* to, const std::byte* from, std::size_t bytes);
  void run(GroupRuns& runs);
  bool has_stopped();

  const ExecutorMemory staging_;
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<Event> done_;
  bool has_device_ = true;
  bool is_marked_ = false;  // done_ is recorded after what a call that failed has queued, too

  // Of the newest:
  Stage stage_ = Stage::kEnded;
  std::vector<Rank> members_;
  GroupData data_{};
  std::string algorithm_;
  std::uint64_t number_ = 0;
};

}  // namespace pyc
