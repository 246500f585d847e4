#include "services/common/weighted_sum.h"

namespace pyc {

WeightedSum::WeightedSum(Memory& memory, Elements elements)
    : memory_(memory), elements_(elements), sum_(memory.allocate(kBlockBytes)), next_(memory.allocate(kBlockBytes)) {}

std::byte* WeightedSum::block(const std::vector<Term>& terms, std::size_t first, std::size_t count) {
  load(sum_.get(), terms.front(), first, count);
  for (std::size_t i = 1; i < terms.size(); ++i) {
    load(next_.get(), terms[i], first, count);
    memory_.reduce(elements_, ReduceOp::kSum, sum_.get(), next_.get(), count);
  }
  return sum_.get();
}

void WeightedSum::load(std::byte* into, const Term& term, std::size_t first, std::size_t count) {
  memory_.load(elements_, into, term.values + first * size_of(elements_.type), count);
  if (term.weight != 1) memory_.scale(elements_.accumulator, into, count, term.weight);
}

}  // namespace pyc
