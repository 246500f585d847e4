// Weighted sums of values, in blocks that fit the first-level cache. Terms are added in their order, whatever the block
// length, so the bits are the same wherever a sum is computed.
#pragma once

#include <cstddef>
#include <vector>

#include "memory/memory.h"

namespace pyc {

struct Term {
  const std::byte* values;
  double weight;
};

class WeightedSum {
 public:
  static constexpr std::size_t kBlockBytes = std::size_t{8} << 10U;

  /// Values have the element type of `elements`, and sums have its accumulator type.
  WeightedSum(Memory& memory, Elements elements);

  /// Elements [first, first + count) of the sum, at most `longest_block()`; valid until the next call. Needs a term.
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
