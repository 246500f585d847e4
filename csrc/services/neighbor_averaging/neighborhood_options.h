// What a neighborhood is: the neighbors of one rank in each step, and how it averages with them. Of graphs nothing else
// is known here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/types.h"

namespace pyc {

struct Neighbor {
  Rank rank;
  double weight;  ///< of an in-neighbor: how much its values count here; of an out-neighbor: how much this rank's there
};

/// The neighbors of one step, ascending, without this rank.
struct NeighborhoodStep {
  double own_weight = 1;
  std::vector<Neighbor> in;
  std::vector<Neighbor> out;
};

enum class NeighborhoodKind : std::uint8_t {
  kAverage,  ///< x = sum of weight * x over itself and the in-neighbors: D-PSGD
  kPushSum,  ///< the same of x and of a scalar, whose quotient is the model: SGP
};

struct NeighborhoodOptions {
  std::string name;
  NeighborhoodKind kind = NeighborhoodKind::kAverage;
  std::size_t count = 0;
  DataType type = DataType::kFloat32;   ///< a float type
  std::uint64_t overlap = 0;            ///< 1: what is sent in a step counts one step later; kPushSum only
  std::vector<NeighborhoodStep> steps;  ///< of one period; step s has the neighbors at s % period

  const NeighborhoodStep& at(std::uint64_t step) const { return steps[step % steps.size()]; }
  bool push_sum() const { return kind == NeighborhoodKind::kPushSum; }
  /// From the caller's arrays to that in which sums are held.
  Elements elements() const { return elements_of(type, ReduceOp::kSum); }
  /// From what a rank shows its neighbors to that in which sums are held. A push-sum shows sums, so that nothing of
  /// them is lost.
  Elements published() const {
    return push_sum() ? Elements{elements().accumulator, elements().accumulator} : elements();
  }
  /// Of what a rank shows its neighbors: the values, and behind them the weight of a push-sum.
  std::size_t weight_offset() const {
    constexpr std::size_t kUnit = sizeof(double);
    return (count * size_of(published().type) + kUnit - 1) / kUnit * kUnit;
  }
  std::size_t published_bytes() const { return weight_offset() + sizeof(double); }
  /// What a rank shows in step s lies there until all have read it, in one of so many buffers. One more than it takes
  /// to go on: a rank may be a step ahead of an out-neighbor.
  std::uint64_t buffers() const { return 2 + overlap; }
  /// All neighbors of the period, ascending.
  std::vector<Rank> neighbors() const {
    std::vector<Rank> all;
    for (const NeighborhoodStep& step : steps) {
      for (const Neighbor& n : step.in) all.push_back(n.rank);
      for (const Neighbor& n : step.out) all.push_back(n.rank);
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }
};

}  // namespace pyc
