// Who may start a round: pure rules on the sets of ranks that have arrived and that have left. A policy belongs to the
// run of a plan, never to the plan.
#pragma once

#include <cstdint>

#include "core/rank_set.h"
#include "core/types.h"

namespace pyc {

struct Policy {
  enum class Kind : std::uint8_t {
    kSolo,    ///< any rank (eager-SGD section 4.1)
    kAnyOf,   ///< any of m designated ranks; m = 1 is majority (eager-SGD section 4.2)
    kAllOf,   ///< all of m designated ranks together
    kQuorum,  ///< the k-th rank to arrive
    kFull,    ///< every rank takes part only once it has arrived itself
  };
  Kind kind = Kind::kSolo;
  Rank count = 0;          ///< m or k
  std::uint64_t seed = 0;  ///< of the designation
  Seconds grace = 0;       ///< quorum: how long to wait for the rest once k have arrived
};

/// The sequence in which ranks are designated for a round: a permutation of all ranks that a counter-based hash of
/// (seed, round) chooses, the same on every rank. Its first member is uniform over the ranks.
class Designation {
 public:
  Designation(std::uint64_t seed, RoundNumber round, Rank size);
  /// Member `index` of the sequence, 0 <= index < size.
  Rank at(Rank index) const {
    return static_cast<Rank>((first_ + static_cast<std::uint64_t>(index) * stride_) % size_);
  }

 private:
  std::uint64_t size_;
  std::uint64_t first_;
  std::uint64_t stride_;  // coprime with size_
};

/// The rank that counts the arrivals of a round, where the policy needs them counted and the activation has no root.
Rank coordinator_of(const Policy& policy, RoundNumber round, Rank size);

/// Whether arrivals must be reported to the coordinator, or each rank can tell for itself.
constexpr bool counts_arrivals(const Policy& policy) {
  return policy.kind == Policy::Kind::kQuorum || policy.kind == Policy::Kind::kAllOf;
}

/// For a policy that does not count: may `rank`, having arrived, start the round? A designated rank that has left is
/// replaced by the next of the sequence.
bool may_start(const Policy& policy, RoundNumber round, Rank rank, RankView left, Rank size);

/// For a policy that counts: may the round start? A rank that has left counts as arrived, but no round starts without a
/// real arrival.
bool enough_arrived(const Policy& policy, RoundNumber round, RankView arrived, RankView left, Rank size);

/// What the policy says of a round, with what is known here of who has arrived and who has left.
struct Verdict {
  Rank initiator = kNoRank;  ///< kNoRank: it may not start yet
  bool gives_grace = false;  ///< it may start, but the rest is given time to come
};
/// `newest`: the last to arrive, while no grace ran. `asker`: who starts a round that nobody arrived in.
Verdict judge(const Policy& policy, RoundNumber round, RankView arrived, RankView left, Rank newest, Rank asker,
              Rank size);

}  // namespace pyc
