#include "groups/connectivity.h"

#include <algorithm>

namespace pyc {

Connectivity::Connectivity(Rank size, std::size_t window, std::size_t period)
    : period_(period),
      window_(window),
      labels_(static_cast<std::size_t>(size), kNoRank),
      parent_(static_cast<std::size_t>(size), kNoRank) {}

void Connectivity::note(std::span<const Rank> group) {
  if (window_.empty() || group.size() < 2) return;
  window_[noted_ % window_.size()].assign(group.begin(), group.end());
  ++noted_;
  if (wants_bridge()) {
    join(group);
    for (Rank& l : labels_) l = l == kNoRank ? kNoRank : root(l);
  }
  if (noted_ >= window_.size() && noted_ % period_ == 0) look_again();
}

Rank Connectivity::root(Rank rank) {
  Rank* up = &parent_[static_cast<std::size_t>(rank)];
  while (*up != rank) {
    *up = parent_[static_cast<std::size_t>(*up)];
    rank = *up;
    up = &parent_[static_cast<std::size_t>(rank)];
  }
  return rank;
}

/// Workers without a component first get their own.
void Connectivity::join(std::span<const Rank> group) {
  Rank first = kNoRank;
  for (const Rank r : group) {
    Rank& l = labels_[static_cast<std::size_t>(r)];
    if (l == kNoRank) {
      parent_[static_cast<std::size_t>(r)] = l = r;
      ++components_;
    }
    const Rank here = root(r);
    if (first == kNoRank) {
      first = here;
    } else if (here != first) {
      parent_[static_cast<std::size_t>(here)] = first;
      --components_;
    }
  }
}

void Connectivity::look_again() {
  std::fill(labels_.begin(), labels_.end(), kNoRank);
  components_ = 0;
  for (const std::vector<Rank>& group : window_) join(group);
  for (Rank& l : labels_) l = l == kNoRank ? kNoRank : root(l);
}

}  // namespace pyc
