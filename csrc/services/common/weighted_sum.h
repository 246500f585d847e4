// Weighted sums of values, block by block, each block in the first-level cache.
//
// The order of additions is that of the terms, whatever the length of a block: the same bits wherever it is computed.
#pragma once

#include <cstddef>
#include <vector>

#include "memory/memory.h"

namespace pyc {

/// weight * values.
struct Term {
  const std::byte* values;
  double weight;
};

class WeightedSum {
 public:
  static constexpr std::size_t kBlockBytes = std::size_t{8} << 10U;

  /// Of values of the element type of `elements`; the sum is of its accumulator type.
  WeightedSum(Memory& memory, Elements elements);

  /// Elements [first, first + count) of the sum, at most `longest_block()`; valid until the next call. Never of no
  /// terms.
  std::byte* block(const std::vector<Term>& terms, std::size_t first, std::size_t count);
  std::size_t longest_block() const { return kBlockBytes / size_of(elements_.accumulator); }

 private:
  void load(std::byte* into, const Term& term, std::size_t first, std::size_t count);

  Memory& memory_;
  const Elements elements_;
  BufferPtr sum_;
  BufferPtr next_;
};

}  // namespace pyc
