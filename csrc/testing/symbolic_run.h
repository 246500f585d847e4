// Executes the plans of all ranks together on symbols: what a block of data holds is how often each rank's contribution
// is in it, and which elements of the contributions. The order in which ready ops execute is random, which stands for
// every delay of ranks and of messages: a send reads its slice, and a receive writes its own, at any time between
// firing and completing.
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

/// For every send and receive of every rank the op of the other rank that it meets: [rank][op].
using Matching = std::vector<std::vector<std::optional<OpId>>>;

class SymbolicRun {
 public:
  /// What a slice holds.
  struct Content {
    std::vector<std::uint16_t> times;  ///< how often each rank's contribution is in it
    std::size_t first = 0;             ///< the element of the contributions that its first element is
    bool empty() const;
  };
  /// Told of each trigger and signal as it executes; may assign data and fire triggers.
  using OnControl = std::function<void(Rank, OpId)>;

  SymbolicRun(std::span<const Schedule> plans, const Matching& matching, std::uint64_t seed, bool refire,
              Findings& findings);

  void on_control(OnControl callback) { on_control_ = std::move(callback); }

  /// The whole buffer holds the contribution of `contributor`, or nothing at all (kNoRank).
  void assign(Rank rank, BufferId buffer, Rank contributor);

  void fire(Rank rank, OpId op);
  bool fired(Rank rank, OpId op) const { return ranks_[at(rank)].state[index(op)] != State::kWaiting; }

  /// Executes whatever is ready, until nothing is.
  void run();

  /// Reports ops that have not completed.
  void check_complete() const;
  /// Reports if the buffer holds anything but `times` each rank's contribution; `when` goes into the text.
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
