#include "services/neighbor_averaging/neighborhood_model.h"

#include <algorithm>
#include <cstring>

namespace pyc {

NeighborhoodModel::NeighborhoodModel(Memory& memory, const NeighborhoodOptions& options)
    : memory_(memory),
      options_(options),
      elements_(options.elements()),
      published_(options.published()),
      application_(memory, published_),
      engine_(memory, published_),
      narrowed_(memory.allocate(WeightedSum::kBlockBytes)),
      model_(memory.allocate(options.published_bytes())) {}

double NeighborhoodModel::weight_of(const std::byte* shown) const {
  double weight;
  std::memcpy(&weight, shown + options_.weight_offset(), sizeof weight);
  return weight;
}

void NeighborhoodModel::set_weight(std::byte* shown, double weight) const {
  std::memcpy(shown + options_.weight_offset(), &weight, sizeof weight);
}

double NeighborhoodModel::total_weight(const std::vector<Term>& terms) const {
  double total = 0;
  for (const Term& term : terms) total += term.weight * weight_of(term.values);
  return total;
}

void NeighborhoodModel::show(const std::byte* values, std::byte* into) {
  const double weight = options_.push_sum() && is_set_ ? weight_of(model_.get()) : 1;
  set_weight(into, weight);
  if (!options_.push_sum()) {
    memory_.copy(into, values, options_.count * size_of(elements_.type));
  } else if (!is_set_ || (weight == 1 && !elements_.widened())) {  // the caller has the sum
    memory_.load(elements_, into, values, options_.count);
  } else {
    add_change(values, weight, into);
  }
}

/// into = the sum + (values - the result of the last `write`).
void NeighborhoodModel::add_change(const std::byte* values, double weight, std::byte* into) {
  const std::vector<Term> sum = and_model({});
  const std::size_t width = size_of(elements_.accumulator);
  for (std::size_t first = 0; first < options_.count; first += application_.longest_block()) {
    const std::size_t count = std::min(application_.longest_block(), options_.count - first);
    std::byte* const change = application_.block(sum, first, count);
    if (weight != 1) memory_.scale(elements_.accumulator, change, count, 1 / weight);
    memory_.store(elements_, narrowed_.get(), change, count, 1);
    memory_.load(elements_, change, narrowed_.get(), count);
    memory_.scale(elements_.accumulator, change, count, -1);
    memory_.accumulate(elements_, ReduceOp::kSum, change, values + first * size_of(elements_.type), count);
    memory_.copy(into + first * width, model_.get() + first * width, count * width);
    memory_.reduce(published_, ReduceOp::kSum, into + first * width, change, count);
  }
}

bool NeighborhoodModel::average(const std::vector<Term>& terms) {
  const std::size_t width = size_of(published_.type);
  const std::size_t end = std::min(next_ + kPartBytes / width, options_.count);
  while (next_ < end) {
    const std::size_t count = std::min(engine_.longest_block(), end - next_);
    const std::byte* const sum = engine_.block(terms, next_, count);
    memory_.store(published_, model_.get() + next_ * width, sum, count, 1);
    next_ += count;
  }
  if (next_ < options_.count) return false;
  set_weight(model_.get(), options_.push_sum() ? total_weight(terms) : 1);
  is_set_ = true;
  next_ = 0;
  return true;
}

bool NeighborhoodModel::add(const std::vector<Term>& terms) { return average(and_model(terms)); }

std::vector<Term> NeighborhoodModel::and_model(const std::vector<Term>& added) const {
  std::vector<Term> terms{{model_.get(), 1}};
  terms.insert(terms.end(), added.begin(), added.end());
  return terms;
}

double NeighborhoodModel::write(const std::vector<Term>& added, std::byte* out) {
  const std::vector<Term> terms = and_model(added);
  const double weight = options_.push_sum() ? total_weight(terms) : 1;
  for (std::size_t first = 0; first < options_.count; first += application_.longest_block()) {
    const std::size_t count = std::min(application_.longest_block(), options_.count - first);
    std::byte* const sum = application_.block(terms, first, count);
    if (weight != 1) memory_.scale(elements_.accumulator, sum, count, 1 / weight);
    memory_.store(elements_, out + first * size_of(elements_.type), sum, count, 1);
  }
  return weight;
}

}  // namespace pyc
