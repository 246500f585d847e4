// How long a quorum waits for further ranks under grace="auto" (ours; issue 676 of hivemind proposes the formula).
//
// An offset is the time from the quorum of a round to the arrival of a further rank. A late call counts too, for the
// first round that it has missed: otherwise a grace that is too short would never learn that ranks arrive after it. The
// grace is the median of the last offsets plus 3 median absolute deviations, but no longer than the quorum itself took,
// so that a round takes at most twice as long as without a grace. While few offsets are known, it is that long;
// in the first round it is 0.
//
// A state machine without a clock or pointers: the ranks of a node share it.
#pragma once

#include <array>
#include <cstddef>

#include "core/types.h"

namespace pyc {

class Grace {
 public:
  /// A rank has arrived in `round`, or its late call has missed that round first.
  void arrive(RoundNumber round, Seconds now);
  /// `round` has its quorum. Returns how long it waits for further ranks.
  Seconds reach(RoundNumber round, Seconds now);
  /// A round has started: the next quorum takes its time from here on.
  void start(Seconds now) { started_ = now; }
  /// Ranks flush. The time to the next quorum does not count; the time of the quorum before is used again.
  void pause() { started_ = kNotStarted; }

 private:
  static constexpr Seconds kNotStarted = -1;
  static constexpr std::size_t kOffsets = 32;
  static constexpr std::size_t kFew = 8;
  static constexpr std::size_t kQuorums = 64;  // a call that is later is not counted
  struct Quorum {
    RoundNumber round = kNoRound;
    Seconds reached = 0;
  };

  Seconds expected() const;

  std::array<Seconds, kOffsets> offsets_{};
  std::size_t known_ = 0;  // offsets ever counted
  std::array<Quorum, kQuorums> quorums_{};
  Seconds started_ = kNotStarted;
  Seconds took_ = 0;  // the newest quorum
};

}  // namespace pyc
