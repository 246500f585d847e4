// The model of one rank: what it shows its neighbors, and what it becomes in a step.
//
// All are in one form, that in which values are shown: the values, or the sums of a push-sum, and behind them its
// weight. `show` and `write` are called by the application, `average` under the engine's progress lock, never at once.
#pragma once

#include <cstddef>
#include <vector>

#include "memory/memory.h"
#include "services/common/weighted_sum.h"
#include "services/neighbor_averaging/neighborhood_options.h"

namespace pyc {

class NeighborhoodModel {
 public:
  NeighborhoodModel(Memory& memory, const NeighborhoodOptions& options);

  /// into = what neighbors are to see of a rank whose caller has `values`. In a push-sum, what the caller has changed
  /// since `write` is added to the sum: SGP, Algorithm 1, line 4.
  void show(const std::byte* values, std::byte* into);

  /// The model = the sum of the terms, a part of it in each call. Whether that was the last.
  bool average(const std::vector<Term>& terms);

  /// The model = itself + the sum of the terms, in the same way.
  bool add(const std::vector<Term>& terms);

  /// out = the caller's values: of the model and what is to be added to it. Returns the weight.
  double write(const std::vector<Term>& added, std::byte* out);

 private:
  static constexpr std::size_t kPartBytes = std::size_t{256} << 10U;  // then others may drive the engine

  double weight_of(const std::byte* shown) const;
  void set_weight(std::byte* shown, double weight) const;
  double total_weight(const std::vector<Term>& terms) const;
  std::vector<Term> and_model(const std::vector<Term>& added) const;
  void add_change(const std::byte* values, double weight, std::byte* into);

  Memory& memory_;
  const NeighborhoodOptions& options_;
  const Elements elements_;
  const Elements published_;
  WeightedSum application_;  // the scratch memory of one thread each
  WeightedSum engine_;
  BufferPtr narrowed_;  // the application's
  BufferPtr model_;
  bool is_set_ = false;
  std::size_t next_ = 0;  // element that `average` goes on with
};

}  // namespace pyc
