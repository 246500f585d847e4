// When a round may start: pure functions of the arrivals and departures. A policy belongs to a run, not to a plan.
#pragma once

#include <cstdint>

#include "core/rank_set.h"
#include "core/types.h"

namespace pyc {

/// The grace follows recent arrivals (grace.h).
inline constexpr Seconds kAutoGrace = -1;

struct Policy {
  enum class Kind : std::uint8_t {
    kSolo,    ///< any rank (eager-SGD section 4.1)
    kAnyOf,   ///< any of m designated ranks; m = 1 is majority (eager-SGD section 4.2)
    kAllOf,   ///< all of m designated ranks
    kQuorum,  ///< the k-th rank to arrive
    kFull,    ///< any rank; the round takes a rank's part only after its arrival
  };
  Kind kind = Kind::kSolo;
  Rank count = 0;  ///< m or k
  std::uint64_t seed = 0;
  Seconds grace = 0;  ///< quorum: time for the other ranks after the k-th arrival, or kAutoGrace
};

/// The order in which ranks are designated for a round: a permutation of all ranks, chosen by a counter-based hash of
/// (seed, round), the same on every rank. The first member is uniform over the ranks.
class Designation {
 public:
  Designation(std::uint64_t seed, RoundNumber round, Rank size);
  /// 0 <= index < size.
  Rank at(Rank index) const {
    return static_cast<Rank>((first_ + static_cast<std::uint64_t>(index) * stride_) % size_);
  }

 private:
  std::uint64_t size_;
  std::uint64_t first_;
  std::uint64_t stride_;  // coprime with size_
};

/// The rank that counts the arrivals of a round, if the policy counts them and the activation has no root.
Rank coordinator_of(const Policy& policy, RoundNumber round, Rank size);

constexpr bool has_grace(const Policy& policy) { return policy.grace != 0; }
constexpr bool adapts_grace(const Policy& policy) { return policy.grace == kAutoGrace; }

/// Whether the coordinator must count arrivals. Otherwise each rank decides for itself.
constexpr bool counts_arrivals(const Policy& policy) {
  return policy.kind == Policy::Kind::kQuorum || policy.kind == Policy::Kind::kAllOf;
}

/// For a policy that does not count: whether `rank`, which has arrived, may start the round. The next rank of the
/// sequence replaces a designated rank that has left.
bool may_start(const Policy& policy, RoundNumber round, Rank rank, RankView left, Rank size);

/// For a policy that counts: whether the round may start. A rank that has left counts as arrived, but no round starts
/// without a real arrival.
bool enough_arrived(const Policy& policy, RoundNumber round, RankView arrived, RankView left, Rank size);

struct Verdict {
  Rank initiator = kNoRank;  ///< kNoRank: the round may not start yet
  bool gives_grace = false;  ///< the round may start, but the other ranks get time to arrive
};
/// `newest`: the last arrival before any grace. `asker`: the initiator of a round without arrivals.
Verdict judge(const Policy& policy, RoundNumber round, RankView arrived, RankView left, Rank newest, Rank asker,
              Rank size);

}  // namespace pyc
