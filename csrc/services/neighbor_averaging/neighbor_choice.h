// The choice of the neighbor that a rank averages with next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/splitmix.h"
#include "core/types.h"

namespace pyc {

class NeighborChoice {
 public:
  NeighborChoice(std::vector<Rank> neighbors, bool random, std::uint64_t seed)
      : neighbors_(std::move(neighbors)), is_random_(random), random_(seed) {}

  /// An available neighbor, at random or in rotation. The rotation advances only with `took_turn`, so a neighbor that
  /// was busy is asked again.
  template <class IsAvailable>
  std::optional<Rank> next(IsAvailable is_available) {
    available_.clear();
    for (std::size_t i = 0; i < neighbors_.size(); ++i) {
      const Rank neighbor = neighbors_[(turn_ + i) % neighbors_.size()];
      if (is_available(neighbor)) available_.push_back(neighbor);
    }
    if (available_.empty()) return std::nullopt;
    return available_[is_random_ ? random_.below(available_.size()) : 0];
  }

  void took_turn(Rank neighbor) {
    if (is_random_) return;
    std::size_t i = 0;
    while (neighbors_[i] != neighbor) ++i;
    turn_ = (i + 1) % neighbors_.size();
  }

  const std::vector<Rank>& all() const { return neighbors_; }

 private:
  const std::vector<Rank> neighbors_;
  const bool is_random_;
  SplitMix random_;
  std::size_t turn_ = 0;
  std::vector<Rank> available_;
};

}  // namespace pyc
