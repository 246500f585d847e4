// Update rules: SGD with and without momentum, Adam, and elastic averaging. Element by element, in float32 or float64.
#pragma once

#include <cstddef>
#include <functional>

#include "core/types.h"
#include "services/parameter_server/options.h"
#include "services/parameter_server/table.h"

namespace pyc::server {

/// Replaces an update rule: called with all weights of a shard and the gradient, both of the accumulator type.
using Update = std::function<void(std::byte* weights, const std::byte* gradient)>;

class UpdateRule {
 public:
  /// `type`: of the weights, float32 or float64.
  UpdateRule(const UpdateOptions& options, DataType type) : options_(options), type_(type) {}

  /// Update `number`, from 1. `state[i]`, of `options.states()`, has `count` elements, zero before the first update.
  void apply(std::byte* weights, std::byte* const* state, const std::byte* gradient, std::size_t count,
             Version number) const;

  /// Plain SGD, which can use `apply_and_give`.
  bool is_plain() const { return options_.rule == Rule::kSgd && options_.momentum == 0; }
  bool is_elastic() const { return options_.rule == Rule::kElastic; }
  /// `apply`, which also writes the new weights to `out` while they are in registers. `out` may be the gradient.
  void apply_and_give(std::byte* weights, const std::byte* gradient, std::byte* out, std::size_t count) const;

  /// Elastic averaging (Zhang et al., "Deep learning with elastic averaging SGD", 2015, Algorithm 1): center and
  /// weights move towards each other, each by alpha times their difference.
  void average(std::byte* center, std::byte* weights, std::size_t count) const;

 private:
  const UpdateOptions options_;
  const DataType type_;
};

}  // namespace pyc::server
