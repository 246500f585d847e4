#include "services/partial_allreduce/policy.h"

#include <numeric>

#include "core/hot.h"
#include "core/splitmix.h"

namespace pyc {

Designation::Designation(std::uint64_t seed, RoundNumber round, Rank size) : size_(static_cast<std::uint64_t>(size)) {
  const std::uint64_t hash = mix(mix(seed) ^ round);
  first_ = hash % size_;
  stride_ = 1 + mix(hash) % size_;
  while (std::gcd(stride_, size_) != 1) ++stride_;
}

Rank coordinator_of(const Policy& policy, RoundNumber round, Rank size) {
  return Designation(policy.seed, round, size).at(0);
}

bool may_start(const Policy& policy, RoundNumber round, Rank rank, RankView left, Rank size) {
  if (policy.kind != Policy::Kind::kAnyOf) return !counts_arrivals(policy);  // solo and full: any arrival
  const Designation designation(policy.seed, round, size);
  Rank designated = 0;
  for (Rank i = 0; i < size && designated < policy.count; ++i) {
    const Rank candidate = designation.at(i);
    if (candidate == rank) return true;
    if (!left.contains(candidate)) ++designated;
  }
  return false;
}

bool enough_arrived(const Policy& policy, RoundNumber round, RankView arrived, RankView left, Rank size) {
  if (arrived.empty()) return false;
  if (policy.kind == Policy::Kind::kQuorum) {
    Rank present = arrived.count();
    for (Rank r = 0; r < size && present < policy.count; ++r) {
      if (left.contains(r) && !arrived.contains(r)) ++present;
    }
    return present >= policy.count;
  }
  const Designation designation(policy.seed, round, size);
  for (Rank i = 0; i < policy.count; ++i) {
    const Rank designated = designation.at(i);
    if (!arrived.contains(designated) && !left.contains(designated)) return false;
  }
  return true;
}

PYC_HOT Verdict judge(const Policy& policy, RoundNumber round, RankView arrived, RankView left, Rank newest, Rank asker,
                      Rank size) {
  if (left.count() == size) return {asker};  // the flush round
  if (arrived.empty()) return {};
  if (!counts_arrivals(policy)) {
    for (Rank r = 0; r < size; ++r) {
      if (arrived.contains(r) && may_start(policy, round, r, left, size)) return {r};
    }
    return {};
  }
  if (!enough_arrived(policy, round, arrived, left, size)) return {};
  Rank come = 0;
  for (Rank r = 0; r < size; ++r) come += arrived.contains(r) || left.contains(r) ? 1 : 0;
  return {newest, has_grace(policy) && come < size};
}

}  // namespace pyc
