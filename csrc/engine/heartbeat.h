// Detects lost machines, because an MPI may wait indefinitely for a machine without power or network.
//
// Every quarter of the time limit, the lowest running rank of a machine notifies the ranks of all other machines. It
// also names the dead ranks of its machine, whose processes it sees. A machine that is silent for the limit is lost. A
// rank that computes is not lost, because its progress thread sends. A stopped rank is not lost if another rank of its
// machine runs. A single-threaded state machine without a clock; off until it is started.
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

  /// `machines`: the machine number of each rank.
  void start(std::vector<int> machines, Seconds limit, Seconds now);
  bool on() const { return limit_ > 0; }
  Seconds limit() const { return limit_; }

  /// Whether a message is due. If so, the next one is due after a period.
  bool is_due(Seconds now);
  /// Sends that this rank is alive and which ranks of its machine are dead.
  void speak(const std::vector<Rank>& dead);
  void on_message(Rank from, ConstBytes message, Seconds now);

  /// The dead ranks that other machines reported. A machine reports a death once, and may then be silent.
  std::vector<Rank> dead() const { return {dead_.begin(), dead_.end()}; }
  /// The ranks of machines that were silent for the limit. Call it often: after a pause, in which this process may have
  /// been stopped, the limit starts again.
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
  Seconds asked_ = 0;           // when `lost` was last called
  std::vector<Seconds> heard_;  // when each machine was last heard
  std::set<Rank> dead_;
};

}  // namespace pyc
