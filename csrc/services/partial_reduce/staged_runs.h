// P-Reduces by messages of values on a device, through pinned host memory, because the MPI libraries that we build
// against take no device addresses. Messages carry accumulators, widened and weighted on the device. Copies are ops of
// the run's plan (algorithms/staged_allreduce.h), so pieces are copied while others travel. Only the destructor waits.
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

  /// Bytes that data needs.
  struct Room {
    std::size_t staging;  ///< of the host
    std::size_t work;     ///< of the device; 0: the values are accumulators

    void grow(const Room& other) {
      staging = std::max(staging, other.staging);
      work = std::max(work, other.work);
    }
    friend bool operator==(const Room&, const Room&) = default;
  };
  static Room room_for(const GroupData& data);

  /// Allocates all memory. Copies have at least `piece_bytes`, a multiple of every element size.
  StagedRuns(Executor& executor, const Room& room, std::size_t piece_bytes);
  ~StagedRuns();
  StagedRuns(const StagedRuns&) = delete;
  StagedRuns& operator=(const StagedRuns&) = delete;

  Staging& staging() { return staging_; }
  /// The `piece` of `GroupRuns::prepare`, which limits the number of pieces to `kMostPieces` and a rest.
  static std::size_t piece_of(const GroupData& data, std::size_t piece_bytes);
  const Room& room() const { return room_; }

  /// Like `GroupRuns::prepare` and `start`; `data.values` is on the device.
  void start(GroupRuns& runs, std::span<const Rank> members, const GroupData& data, const std::string& algorithm,
             std::uint64_t number);
  /// Like `GroupRuns::finish`, but stays true until the next start. If it throws DeviceError, call `give_up_device` and
  /// continue to call `finish`: the P-Reduce ends without this rank's device.
  bool finish(GroupRuns& runs);
  /// Whether `finish` has made progress since the last call.
  bool take_moved() { return std::exchange(moved_, false); }
  /// Queues no further work. A run that has not begun gets no values of this rank.
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
  bool is_marked_ = false;  // done_ is recorded after the work of a failed call too

  // The newest P-Reduce.
  Stage stage_ = Stage::kEnded;
  std::vector<Rank> members_;
  GroupData data_{};
  std::string algorithm_;
  std::uint64_t number_ = 0;
};

}  // namespace pyc
