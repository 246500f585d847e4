#include "services/partial_allreduce/grace.h"

#include <algorithm>
#include <cmath>

namespace pyc {
namespace {

constexpr double kDeviations = 3;

template <class Values>
Seconds median(Values values, std::size_t count) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(count / 2);
  std::nth_element(values.begin(), middle, values.begin() + static_cast<std::ptrdiff_t>(count));
  return *middle;
}

}  // namespace

void Grace::arrive(RoundNumber round, Seconds now) {
  const Quorum& quorum = quorums_[round % kQuorums];
  if (quorum.round == round) offsets_[known_++ % kOffsets] = std::max(now - quorum.reached, 0.0);
}

Seconds Grace::reach(RoundNumber round, Seconds now) {
  quorums_[round % kQuorums] = {.round = round, .reached = now};
  if (started_ != kNotStarted) took_ = now - started_;
  return known_ < kFew ? took_ : std::min(expected(), took_);
}

Seconds Grace::expected() const {
  const std::size_t count = std::min(known_, kOffsets);
  const Seconds middle = median(offsets_, count);
  std::array<Seconds, kOffsets> deviations{};
  std::transform(offsets_.begin(), offsets_.end(), deviations.begin(),
                 [middle](Seconds offset) { return std::abs(offset - middle); });
  return middle + kDeviations * median(deviations, count);
}

}  // namespace pyc
