#include "algorithms/recursive_doubling.h"

#include <algorithm>
#include <bit>

#include "algorithms/registry.h"
#include "core/patterns.h"

namespace pyc {
namespace {

Leg step(double elements, bool reduces) {
  return {.flights = 1, .sends = 1, .receives = 1, .elements = elements, .reduces = reduces};
}

}  // namespace

void allreduce_recursive_doubling(ScheduleBuilder& s, Operands io) {
  const Fold fold{s.rank(), s.size()};
  s.copy(io.in, io.out);
  if (s.size() == 1) return;
  if (fold.is_extra()) {
    s.send(io.out, fold.partner());
    s.recv(io.out, fold.partner());
    return;
  }
  const Slice incoming = s.buffer(io.out.count, "incoming");
  if (fold.has_extra()) {
    s.recv(incoming, fold.partner());
    s.reduce(incoming, io.out);
  }
  for (Rank bit = 1; bit < fold.core_size(); bit *= 2) {
    const Rank peer = fold.to_rank(fold.core_rank() ^ bit);
    s.send(io.out, peer);
    s.recv(incoming, peer);
    s.reduce(incoming, io.out);
  }
  if (fold.has_extra()) s.send(io.out, fold.partner());
}

Course folded(Rank size, double elements, const Chain& there, Rank doublings, double part, const Chain& back) {
  const auto chain_of = [&](bool folds_in, Rank crossed, bool folds_out) {
    Chain chain;
    if (folds_in) chain.push_back(step(elements, true));
    chain.insert(chain.end(), there.begin(), there.end());
    for (Rank k = 0; k < doublings; ++k) {
      // If the first and the last rank of a chain agree in this bit, the chain stays on one rank without a message.
      chain.push_back(step(part, true));
      if (k >= crossed) chain.back().flights = 0;
    }
    chain.insert(chain.end(), back.begin(), back.end());
    if (folds_out) chain.push_back(step(elements, false));
    return chain;
  };
  const Rank extras = size - Fold(0, size).core_size();
  if (extras == 0) return {{chain_of(false, doublings, false)}};
  // From an extra rank to an extra rank. Their partners are the first `extras` ranks of the core.
  const auto differing = static_cast<Rank>(std::bit_width(static_cast<std::uint32_t>(extras - 1)));
  return {{chain_of(true, doublings, false), chain_of(true, std::min(differing, doublings), true)}};
}

Course course_of_recursive_doubling(Rank size, std::size_t count) {
  const auto elements = static_cast<double>(count);
  const auto steps = static_cast<Rank>(std::bit_width(static_cast<std::uint32_t>(size))) - 1;
  return folded(size, elements, {}, steps, elements, {});
}

PYC_ALLREDUCE(
    "recursive_doubling", allreduce_recursive_doubling, .steps = "floor(log2 P), +2 if P is not 2^k",
    .bytes = "S log2 P", .reference = "Thakur, Rabenseifner, Gropp 2005", .is_uniform = true,
    .course = course_of_recursive_doubling, .parts = [](Rank) { return std::size_t{1}; });

}  // namespace pyc
