// Options of a neighborhood: a rank's neighbors in each step, and the kind of average. Graphs are not known here.
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
  double weight;  ///< in-neighbor: the factor of its values here; out-neighbor: the factor of this rank's values there
};

/// The neighbors of one step, in ascending order, without this rank.
struct NeighborhoodStep {
  double own_weight = 1;
  std::vector<Neighbor> in;
  std::vector<Neighbor> out;
};

enum class NeighborhoodKind : std::uint8_t {
  kAverage,  ///< x = sum of weight * x over this rank and its in-neighbors: D-PSGD
  kPushSum,  ///< the same for x and a scalar, whose quotient is the model: SGP
};

struct NeighborhoodOptions {
  std::string name;
  NeighborhoodKind kind = NeighborhoodKind::kAverage;
  std::size_t count = 0;
  DataType type = DataType::kFloat32;   ///< a float type
  std::uint64_t overlap = 0;            ///< 1: values sent in a step count one step later; kPushSum only
  std::vector<NeighborhoodStep> steps;  ///< of one period; step s uses steps[s % period]

  const NeighborhoodStep& at(std::uint64_t step) const { return steps[step % steps.size()]; }
  bool push_sum() const { return kind == NeighborhoodKind::kPushSum; }
  /// The caller's arrays, and sums.
  Elements elements() const { return elements_of(type, ReduceOp::kSum); }
  /// The values shown to neighbors, and sums. A push-sum shows its sums, so that they lose no precision.
  Elements published() const {
    return push_sum() ? Elements{elements().accumulator, elements().accumulator} : elements();
  }
  /// A rank shows its values, followed by the weight of a push-sum.
  std::size_t weight_offset() const {
    constexpr std::size_t kUnit = sizeof(double);
    return (count * size_of(published().type) + kUnit - 1) / kUnit * kUnit;
  }
  std::size_t published_bytes() const { return weight_offset() + sizeof(double); }
  /// The values shown in step s stay in a buffer until all have read them. One buffer more than steps need, because a
  /// rank may be a step ahead of an out-neighbor.
  std::uint64_t buffers() const { return 2 + overlap; }
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
