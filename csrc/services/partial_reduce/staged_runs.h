// P-Reduces by messages of values on a device: through memory of the host from which copies are fast, since the MPI
// libraries that we build against take no addresses of a device. Messages carry accumulators, to which values are
// widened, and weighted, on the device. The copies are ops of the run's plan (algorithms/staged_allreduce.h), so pieces
// are copied while others travel. No call waits: what is queued is polled for.
//
// A device that fails in the middle of a run has sent a part of its values. The run goes on without data, and its
// messages say so: no member is given that sum (`GroupRuns::failed`).
//
// Under the engine's progress lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "memory/executor.h"
#include "services/common/staging.h"
#include "services/partial_reduce/group_runs.h"

namespace pyc {

class StagedRuns {
 public:
  static constexpr std::size_t kMostPieces = 64;

  /// What data needs.
  struct Room {
    std::size_t staging;  ///< bytes of the host
    std::size_t work;     ///< ... and of the device; 0: accumulators are in the place of the values

    void grow(const Room& other) {
      staging = std::max(staging, other.staging);
      work = std::max(work, other.work);
    }
    friend bool operator==(const Room&, const Room&) = default;
  };
  static Room room_for(const GroupData& data);

  /// Allocates all that it will need. Copies are of `piece_bytes` at least, which all elements divide.
  StagedRuns(Executor& executor, const Room& room, std::size_t piece_bytes);
  /// Waits for what is under way.
  ~StagedRuns();
  StagedRuns(const StagedRuns&) = delete;
  StagedRuns& operator=(const StagedRuns&) = delete;

  /// For `GroupRuns::use`.
  Staging& staging() { return staging_; }
  /// As for `GroupRuns::prepare`: so that there are not more than `kMostPieces` and the rest.
  static std::size_t piece_of(const GroupData& data, std::size_t piece_bytes);
  const Room& room() const { return room_; }

  /// As `GroupRuns::prepare` and `start`; `data.values` is on the device.
  void start(GroupRuns& runs, std::span<const Rank> members, const GroupData& data, const std::string& algorithm,
             std::uint64_t number);
  /// As `GroupRuns::finish`, and again true until the next one starts. Throws DeviceError; the P-Reduce goes on then
  /// without this rank's device, if `finish` is called again after `give_up_device`.
  bool finish(GroupRuns& runs);
  /// Whether `finish` has done anything since the last time that this was asked.
  bool take_moved() { return std::exchange(moved_, false); }
  /// Queues nothing any more; if a run has yet to begin, it has no values of this rank.
  void give_up_device() { has_device_ = false; }

 private:
  enum class Stage : std::uint8_t { kLoading, kRunning, kStoring, kEnded };

  void load();
  void run(GroupRuns& runs);
  void follow_copies(GroupRuns& runs);
  void store(const GroupRuns& runs);
  bool has_stopped();
  bool takes_part() const { return data_.values != nullptr && has_device_; }
  std::byte* sum() const;

  const std::size_t piece_bytes_;
  const Room room_;
  const ExecutorMemory work_;
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<Event> done_;
  Staging staging_;
  bool has_device_ = true;
  bool moved_ = false;
  bool is_marked_ = false;  // done_ is recorded after what a call that failed has queued, too

  // Of the newest:
  Stage stage_ = Stage::kEnded;
  std::vector<Rank> members_;
  GroupData data_{};
  std::string algorithm_;
  std::uint64_t number_ = 0;
};

}  // namespace pyc
