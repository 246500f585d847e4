// How gradients change weights: plain and momentum SGD, Adam, and elastic averaging.
//
// All of them element by element, on ranges that fit into a cache, in float32 or float64.
#pragma once

#include <cstddef>
#include <functional>

#include "core/types.h"
#include "services/parameter_server/options.h"
#include "services/parameter_server/table.h"

namespace pyc::server {

/// `update(weights, gradient)`, both of the accumulator type, and all of a shard: in place of a rule.
using Update = std::function<void(std::byte* weights, const std::byte* gradient)>;

class UpdateRule {
 public:
  /// `type`: of the weights, float32 or float64.
  UpdateRule(const UpdateOptions& options, DataType type) : options_(options), type_(type) {}

  /// What it keeps beside the weights, of the same size: momentum (SGD); first and second moment (Adam).
  std::size_t states() const;

  /// Update number `number`, from 1, by a gradient. `state[i]`: of as many elements, zero before the first update.
  void apply(std::byte* weights, std::byte* const* state, const std::byte* gradient, std::size_t count,
             Version number) const;

  /// Whether it is plain SGD, for which there is this.
  bool is_plain() const { return options_.rule == Rule::kSgd && options_.momentum == 0; }
  /// `apply`, and the new weights to `out` too, in one pass: they are in registers. `out` may be the gradient.
  void apply_and_give(std::byte* weights, const std::byte* gradient, std::byte* out, std::size_t count) const;

  /// Elastic averaging (Zhang et al., "Deep learning with elastic averaging SGD", 2015, Algorithm 1): the center moves
  /// to a worker's weights, and these to the center, by alpha of their difference.
  void average(std::byte* center, std::byte* weights, std::size_t count) const;

 private:
  const UpdateOptions options_;
  const DataType type_;
};

}  // namespace pyc::server
