// The model of one rank, in the format that neighbors see: the values, or the sums of a push-sum, followed by its
// weight. The application calls `show` and `write`, the engine calls `average` and `add` under its progress lock, and
// never at the same time.
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

  /// into = the values for neighbors, where `values` are the caller's. In a push-sum, adds the caller's changes since
  /// `write` to the sum (SGP, Algorithm 1, line 4).
  void show(const std::byte* values, std::byte* into);

  /// model = the sum of the terms, a part in each call. Returns whether it is complete.
  bool average(const std::vector<Term>& terms);

  /// model += the sum of the terms, in the same way.
  bool add(const std::vector<Term>& terms);

  /// out = the caller's values of the model + `added`. Returns the weight.
  double write(const std::vector<Term>& added, std::byte* out);

 private:
  static constexpr std::size_t kPartBytes = std::size_t{256} << 10U;  // per call, so that others may drive the engine

  double weight_of(const std::byte* shown) const;
  void set_weight(std::byte* shown, double weight) const;
  double total_weight(const std::vector<Term>& terms) const;
  std::vector<Term> and_model(const std::vector<Term>& added) const;
  void add_change(const std::byte* values, double weight, std::byte* into);

  Memory& memory_;
  const NeighborhoodOptions& options_;
  const Elements elements_;
  const Elements published_;
  WeightedSum application_;  // each is the scratch memory of one thread
  WeightedSum engine_;
  BufferPtr narrowed_;  // the application's
  BufferPtr model_;
  bool is_set_ = false;
  std::size_t next_ = 0;  // the element at which `average` continues
};

}  // namespace pyc
