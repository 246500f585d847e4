// Executes the plans of all ranks together on symbols. The content of a block is how often it has each rank's
// contribution, and which elements of it. Ready ops execute in random order, which covers all delays of ranks and
// messages: a send reads its slice, and a receive writes its slice, at any time between firing and completing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "schedule/schedule.h"
#include "testing/findings.h"

namespace pyc {

/// For every send and receive of every rank, the matching op of the other rank: [rank][op].
using Matching = std::vector<std::vector<std::optional<OpId>>>;

class SymbolicRun {
 public:
  struct Content {
    std::vector<std::uint16_t> times;  ///< how often each rank's contribution is in a slice
    std::size_t first = 0;             ///< the element of the contributions that is the first one of the slice
    bool empty() const;
  };
  /// Called for each trigger and signal as it executes. May assign data and fire triggers.
  using OnControl = std::function<void(Rank, OpId)>;

  SymbolicRun(std::span<const Schedule> plans, const Matching& matching, std::uint64_t seed, bool refire,
              Findings& findings);

  void on_control(OnControl callback) { on_control_ = std::move(callback); }

  /// Fills the whole buffer with the contribution of `contributor`, or with nothing (kNoRank).
  void assign(Rank rank, BufferId buffer, Rank contributor);

  void fire(Rank rank, OpId op);
  bool fired(Rank rank, OpId op) const { return ranks_[at(rank)].state[index(op)] != State::kWaiting; }

  /// Executes ready ops until there are none.
  void run();

  /// Reports ops that have not completed.
  void check_complete() const;
  /// Reports if the buffer has other than `times` each rank's contribution. `when` is part of the text.
  void check_content(Rank rank, BufferId buffer, std::span<const std::uint16_t> times, const std::string& when) const;

 private:
  enum class State : std::uint8_t { kWaiting, kFired, kCompleted };

  struct PerRank {
    std::vector<State> state;                     // per op
    std::vector<std::uint32_t> seen;              // per op: predecessors completed
    std::vector<std::optional<Content>> arrived;  // per op: the message for a receive
    std::vector<std::uint16_t> times;             // per block and contributor
    std::vector<std::size_t> shift;               // per block: element of the contributions - of the buffer
  };
  struct Ready {
    Rank rank;
    OpId op;
  };

  static std::size_t at(Rank rank) { return static_cast<std::size_t>(rank); }
  void execute(Rank rank, OpId op);
  void complete(Rank rank, OpId op);
  std::span<const std::uint16_t> times(Rank rank, std::uint32_t block) const {
    return {ranks_[at(rank)].times.data() + block * plans_.size(), plans_.size()};
  }
  Content read(Rank rank, OpId op, const Slice& slice);
  void write(Rank rank, const Slice& slice, const Content& content);

  std::span<const Schedule> plans_;
  const Matching& matching_;
  std::mt19937_64 random_;
  bool refire_;
  Findings& findings_;
  OnControl on_control_;
  std::vector<PerRank> ranks_;
  std::vector<Ready> ready_;
};

}  // namespace pyc
