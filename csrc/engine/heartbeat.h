// Whether the machines of the other ranks are still there. A machine that loses its power or its network says nothing,
// and an MPI may wait for it for ever, be it fault tolerant or not.
//
// Of each machine one rank, the lowest that runs, says every quarter of the time limit to the ranks of all other
// machines that it is there, and which ranks of its machine have died: it sees their processes. A machine of which
// nothing is heard within the limit is lost. A rank that computes is not: the progress thread speaks for it. Nor is
// one that is stopped, as long as another rank of its machine runs.
//
// A single-threaded state machine without a clock; off until it is started.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "core/types.h"
#include "engine/control.h"

namespace pyc {

class Heartbeat {
 public:
  Heartbeat(Rank rank, SendControl send) : rank_(rank), send_(std::move(send)) {}

  /// `machines`: the number of each rank's.
  void start(std::vector<int> machines, Seconds limit, Seconds now);
  bool on() const { return limit_ > 0; }
  Seconds limit() const { return limit_; }

  /// Whether it is time to speak; then not for a while.
  bool is_due(Seconds now);
  /// Says that this rank is there, and who is not.
  void speak(const std::vector<Rank>& dead);
  void on_message(Rank from, ConstBytes message, Seconds now);

  /// The ranks that have died, as other machines have said: a machine reports a death once, and may then fall silent.
  std::vector<Rank> dead() const { return {dead_.begin(), dead_.end()}; }
  /// The ranks of machines of which nothing has been heard within the limit. To be asked often: after a pause, in which
  /// this process may have been stopped, the limit begins anew.
  std::vector<Rank> lost(Seconds now);

 private:
  static constexpr std::uint32_t kMostNamed = 16;

  struct Message {
    MessageHeader header;
    std::uint32_t count;
    Rank dead[kMostNamed];
  };

  bool is_here(Rank rank) const { return machine_of(rank) == machine_of(rank_); }
  std::size_t machine_of(Rank rank) const {
    return static_cast<std::size_t>(machines_[static_cast<std::size_t>(rank)]);
  }
  Seconds period() const { return limit_ / 4; }

  Rank rank_;
  SendControl send_;
  std::vector<int> machines_;
  Seconds limit_ = 0;
  Seconds next_ = 0;
  Seconds asked_ = 0;           // when `lost` was called last
  std::vector<Seconds> heard_;  // of each machine
  std::set<Rank> dead_;
};

}  // namespace pyc
