// P-Reduces among the devices of a group by a library of their vendor (Ripples section 6.1, which uses NCCL so). There
// is a communicator for each group of members; those that were made are kept, and none is removed, up to a number that
// the library bears. Other groups go through the host (staged_runs.h).
//
// The members meet by messages before any device waits for another one: each says whether it has values, a communicator
// of the group, and room for one. So all come to the same conclusion, whatever groups each has been in before.
//
// A communicator whose reduction one member still performs must not end on another. All end with this, after the last
// group of anybody (`GroupSource::finished`).
//
// Under the engine's progress lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memory/executor.h"
#include "services/common/device_reduction.h"
#include "services/partial_reduce/group_runs.h"
#include "services/partial_reduce/staged_runs.h"

namespace pyc {

class CommunicatorRuns {
 public:
  static constexpr std::size_t kMostCommunicators = 64;  // of a rank, as in the paper

  /// Of the rank `own`. Groups without a communicator are left to `staged`, whose memory the others use.
  CommunicatorRuns(Executor& executor, StagedRuns& staged, Rank own);
  /// Gives up what is under way, and waits until no device works on it.
  ~CommunicatorRuns();
  CommunicatorRuns(const CommunicatorRuns&) = delete;
  CommunicatorRuns& operator=(const CommunicatorRuns&) = delete;

  /// As `StagedRuns::start`, without weights of values.
  void start(GroupRuns& runs, std::span<const Rank> members, const GroupData& data, const std::string& algorithm,
             std::uint64_t number);
  /// As `StagedRuns::finish`. After a DeviceError, `give_up` comes first.
  bool finish(GroupRuns& runs);
  /// A device has failed, this rank's or another's: no device waits for another one any more.
  void give_up();

  /// Whether a communicator was there or had to be made, of all groups that used one. Without the lock.
  std::uint64_t hits() const { return hits_; }
  std::uint64_t misses() const { return misses_; }

 private:
  enum class Stage : std::uint8_t { kMeeting, kNaming, kJoining, kReducing, kStaged, kEnded };
  /// How many members say so.
  struct Votes {
    std::int64_t have_values;
    std::int64_t have_communicator;
    std::int64_t can_keep_one;
  };
  using Message = std::array<std::int64_t, sizeof(CommunicatorId) / sizeof(std::int64_t)>;

  void exchange(GroupRuns& runs, Stage stage, std::size_t words);
  void conclude_meeting(GroupRuns& runs);
  void name(GroupRuns& runs);
  void join();
  CommunicatorLibrary& library() const;
  void reduce(Communicator& communicator);

  Executor& executor_;
  StagedRuns& staged_;
  const Rank own_;
  DeviceReduction reduction_;
  std::map<std::vector<Rank>, std::unique_ptr<Communicator>> communicators_;
  bool is_given_up_ = false;
  std::atomic<std::uint64_t> hits_{0};
  std::atomic<std::uint64_t> misses_{0};

  // Of the newest:
  Stage stage_ = Stage::kEnded;
  std::vector<Rank> members_;
  GroupData data_{};
  std::string algorithm_;
  std::uint64_t number_ = 0;
  Message message_{};         // what the members add up
  std::exception_ptr error_;  // of naming
};

}  // namespace pyc
