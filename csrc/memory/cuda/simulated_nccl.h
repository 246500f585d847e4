// Tests only: an NCCL that works on the simulated driver, among processes of a machine, and is as unkind as the real
// one may be.
//
// Joining takes some polls, and a reduction may be queued only at a later poll. It waits at the head of its stream
// until all members have come to it: for ever, if one never comes, or until the communicator is aborted, when it ends
// without a result. Calls on a communicator that is not settled, or was aborted, are misuse that the driver reports,
// and so is one that is left at the end. Several members may be in one process, on several devices.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "memory/cuda/nccl_api.h"
#include "memory/cuda/simulated_communicator.h"

namespace pyc::cuda {

/// A member, in its process.
struct SimulatedMember {
  SimulatedCommunicator shared;
  int device = 0;
  std::size_t polls = 0;                // to go, until what is in progress is done
  bool joined = false;                  // all have, and it has been told
  std::function<ncclResult_t()> queue;  // what is still to be queued
  std::uint64_t begun = 0;              // reductions
  std::uint64_t told = 0;               // ... of which a poll has said that they are queued
  std::uint64_t done = 0;               // ... whose result it has
  bool aborted = false;
  ncclResult_t error = ncclSuccess;

  bool is_settled() const { return joined && !queue; }
  bool waits() const { return told > done; }  // for other members, as far as it has been told
};

/// What the simulated driver keeps of it.
struct SimulatedNccl {
  std::optional<int> version;  // nothing: there is none
  bool is_held = false;        // reductions of this process do not end
  bool is_strict = false;      // no member fails: all must have their results before one ends
  std::vector<std::shared_ptr<SimulatedStorage>> ids;
  std::map<ncclComm_t, std::shared_ptr<SimulatedMember>> members;
  std::string last_error;

  /// Whether some reduction may wait for another process.
  bool is_reducing() const {
    return std::any_of(members.begin(), members.end(), [](const auto& m) { return m.second->begun > m.second->done; });
  }
};

/// That of the simulated driver, or why it has none.
NcclFinding simulated_nccl();

}  // namespace pyc::cuda
