// What is known of a completed round, and what a call is told about it.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "core/types.h"
#include "memory/pool.h"

namespace pyc {

/// What a call is told (DESIGN: RoundInfo).
struct RoundInfo {
  RoundNumber round = 0;
  Rank initiator = kNoRank;
  bool included = false;
  std::uint32_t contributor_count = 0;
  std::vector<std::uint64_t> contributors;  ///< bitmap over ranks; empty if not tracked
  std::uint32_t active = 0;
  std::uint64_t staleness = 0;
  std::uint64_t missed = 0;
  bool overrun = false;

  std::vector<Rank> contributor_list() const {
    std::vector<Rank> ranks;
    for (std::size_t w = 0; w < contributors.size(); ++w) {
      for (std::uint64_t bits = contributors[w]; bits != 0; bits &= bits - 1) {
        ranks.push_back(static_cast<Rank>(64 * w) + std::countr_zero(bits));
      }
    }
    return ranks;
  }
};

/// What is known of a completed round before a call asks: `info` without included, missed and overrun.
struct RoundSummary {
  RoundInfo info;
  std::uint64_t newest_included = 0;  ///< sequence number of this rank's newest contribution in it; 0: none
  bool flush = false;

  RoundInfo info_for(std::uint64_t sequence) const {
    RoundInfo told = info;
    told.included = newest_included > 0 && newest_included >= sequence;
    return told;
  }
};

/// A round completed at this rank and not given to its application yet.
struct RoundRecord {
  RoundSummary summary;
  BufferRef data;  ///< the result, of the accumulator type; not read if there are no contributors
  RoundNumber round() const { return summary.info.round; }
};

/// One contribution, or one flush, and the round that it waits for.
struct Call {
  RoundNumber round = 0;       ///< that completes it; of a flush known only then
  std::uint64_t sequence = 0;  ///< of this rank's contributions, from 1
  bool late = false;
  bool flush = false;
  std::uint64_t epoch = 0;  ///< of a flush
  Seconds made = 0;         ///< when
  bool done = false;        ///< `info` says how its round went
  bool given = false;       ///< the application has been given its round
  RoundInfo info;
};

}  // namespace pyc
