// The state of each worker in the group generator: whether it is in a group, how often it has asked, when it is due.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/types.h"

namespace pyc {

/// A set of ranks with constant time to list, change and look up. The order depends on its history.
class RankList {
 public:
  explicit RankList(Rank size) : place_(static_cast<std::size_t>(size)) {
    for (Rank r = 0; r < size; ++r) {
      place_[static_cast<std::size_t>(r)] = members_.size();
      members_.push_back(r);
    }
  }

  std::span<const Rank> members() const { return members_; }
  bool contains(Rank rank) const { return place_[static_cast<std::size_t>(rank)] != kNowhere; }

  void insert(Rank rank) {
    if (contains(rank)) return;
    place_[static_cast<std::size_t>(rank)] = members_.size();
    members_.push_back(rank);
  }
  void erase(Rank rank) {
    if (!contains(rank)) return;
    std::size_t& place = place_[static_cast<std::size_t>(rank)];
    const Rank last = members_.back();
    members_[place] = last;
    place_[static_cast<std::size_t>(last)] = place;
    members_.pop_back();
    place = kNowhere;
  }

 private:
  static constexpr std::size_t kNowhere = ~std::size_t{0};
  std::vector<Rank> members_;
  std::vector<std::size_t> place_;  // in members_, by rank
};

class Workers {
 public:
  explicit Workers(Rank size) : present_(size), idle_(size), pace_(static_cast<std::size_t>(size)) {}

  std::span<const Rank> present() const { return present_.members(); }
  /// Present workers that are in no group.
  std::span<const Rank> idle() const { return idle_.members(); }
  bool has_left(Rank worker) const { return !present_.contains(worker); }

  void joins_group(Rank worker) { idle_.erase(worker); }
  void is_free(Rank worker) {
    if (!has_left(worker)) idle_.insert(worker);
  }
  void leaves(Rank worker) {
    present_.erase(worker);
    idle_.erase(worker);
  }

  std::int64_t requests(Rank worker) const { return pace(worker).requests; }

  void asks(Rank worker, Seconds now) {
    Pace& p = pace(worker);
    ++p.requests;
    if (std::isnan(p.released)) return;
    const Seconds worked = now - p.released;
    p.interval = std::isinf(p.interval) ? worked : p.interval + kWeight * (worked - p.interval);
  }
  void is_released(Rank worker, Seconds now) { pace(worker).released = now; }

  /// Running mean of the time that the worker computes between two groups; infinite if unknown.
  Seconds interval(Rank worker) const { return pace(worker).interval; }
  /// Expected time until a worker without a group asks: until it is due or, if it is overdue, as long again as it has
  /// been. 0 if unknown.
  Seconds away(Rank worker, Seconds now) const {
    const Pace& p = pace(worker);
    return std::isinf(p.interval) ? 0 : std::abs(p.released + p.interval - now);
  }

 private:
  static constexpr double kWeight = 0.25;  // weight of the newest interval in the mean

  struct Pace {
    std::int64_t requests = 0;
    Seconds released = std::numeric_limits<Seconds>::quiet_NaN();  // end of its last group
    Seconds interval = std::numeric_limits<Seconds>::infinity();
  };
  const Pace& pace(Rank worker) const { return pace_[static_cast<std::size_t>(worker)]; }
  Pace& pace(Rank worker) { return pace_[static_cast<std::size_t>(worker)]; }

  RankList present_;
  RankList idle_;
  std::vector<Pace> pace_;
};

}  // namespace pyc
