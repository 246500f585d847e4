// Allreduce by recursive halving and doubling: a reduce-scatter, then an allgather.
//
// Halving: in each step a rank exchanges half of its range with a peer at half the previous distance, and reduces the
// half that it keeps. It ends with one of 2^k parts complete. Doubling: the same peers in reverse order exchange their
// complete parts. Extra ranks fold onto a partner as in recursive doubling.
//
// "rabenseifner:K" halves only K times. Ranks with the same part then reduce it by recursive doubling. This takes log2
// P + K steps instead of 2 log2 P, for short data. No variant makes more parts than there are elements. With one
// element it is recursive doubling.
//
// Reference: Rabenseifner, "Optimization of collective reduction operations" (2004).
// Steps: 2 floor(log2 P), 2 more if P is not a power of two. Bytes sent per rank: 2 S (P'-1)/P', P' the largest power
// of two in P (S more for folded pairs).
#include <algorithm>
#include <bit>

#include "algorithms/recursive_doubling.h"
#include "algorithms/registry.h"
#include "core/patterns.h"

namespace pyc {
namespace {

constexpr Rank kAll = 31;

Rank log2_of(std::size_t number) { return static_cast<Rank>(std::bit_width(number)) - 1; }

Rank halvings_of(Rank size, std::size_t count, Rank most) {
  return count == 0 ? 0 : std::min({most, log2_of(static_cast<std::size_t>(size)), log2_of(count)});
}

void build_halving(ScheduleBuilder& s, Operands io, Rank most) {
  const Fold fold{s.rank(), s.size()};
  const Rank halvings = halvings_of(s.size(), io.out.count, most);
  if (halvings == 0) return allreduce_recursive_doubling(s, io);

  s.copy(io.in, io.out);
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

  // Parts [first, first + n) of the vector.
  const std::size_t parts = std::size_t{1} << halvings;
  const auto range = [&](Rank first, Rank n) {
    const Interval head = balanced_part(io.out.count, parts, static_cast<std::size_t>(first));
    const Interval tail = balanced_part(io.out.count, parts, static_cast<std::size_t>(first + n - 1));
    return io.out.part(head.first, tail.first + tail.count - head.first);
  };
  const auto exchange = [&](Rank bit, const Slice& given, const Slice& kept) {
    const Rank peer = fold.to_rank(fold.core_rank() ^ bit);
    const Slice landing = incoming.part(0, kept.count);
    s.send(given, peer);
    s.recv(landing, peer);
    s.reduce(landing, kept);
  };
  Rank first = 0;  // this rank is responsible for parts [first, first + 2 * width) before each halving step
  Rank bit = fold.core_size() / 2;
  for (Rank width = static_cast<Rank>(parts) / 2; width >= 1; width /= 2, bit /= 2) {
    const bool keeps_upper = (fold.core_rank() & bit) != 0;
    const Slice given = range(keeps_upper ? first : first + width, width);
    if (keeps_upper) first += width;
    exchange(bit, given, range(first, width));
  }
  for (; bit >= 1; bit /= 2) exchange(bit, range(first, 1), range(first, 1));
  bit = fold.core_size() / static_cast<Rank>(parts);
  for (Rank width = 1; width < static_cast<Rank>(parts); width *= 2, bit *= 2) {  // [first, first + width) is complete
    const Rank peer = fold.to_rank(fold.core_rank() ^ bit);
    s.send(range(first, width), peer);
    s.recv(range(first ^ width, width), peer);
    first &= ~width;
  }
  if (fold.has_extra()) s.send(io.out, fold.partner());
}

Course course_of_halving(Rank size, std::size_t count, Rank most) {
  const Rank halvings = halvings_of(size, count, most);
  if (halvings == 0) return course_of_recursive_doubling(size, count);
  const auto elements = static_cast<double>(count);
  const double part = elements / static_cast<double>(std::size_t{1} << halvings);
  Chain there;
  Chain back;
  for (Rank k = 1; k <= halvings; ++k) {
    const double half = elements / static_cast<double>(std::size_t{1} << k);
    there.push_back({.flights = 1, .sends = 1, .receives = 1, .elements = half, .reduces = true});
    back.push_back({.flights = 1, .sends = 1, .receives = 1, .elements = half, .reduces = false});
  }
  return folded(size, elements, there, log2_of(static_cast<std::size_t>(size)) - halvings, part, back);
}

AllreduceAlgorithm halving_of(Rank most) {
  return {
      .name = "rabenseifner:" + std::to_string(most),
      .build = [=](ScheduleBuilder& s, Operands io) { build_halving(s, io, most); },
      .steps = {},
      .bytes = {},
      .reference = {},
      .is_uniform = false,
      .course = [=](Rank size, std::size_t count) { return course_of_halving(size, count, most); },
      .parts =
          [=](Rank size) { return std::min(std::size_t{1} << most, std::bit_floor(static_cast<std::size_t>(size))); }};
}

void allreduce_rabenseifner(ScheduleBuilder& s, Operands io) { build_halving(s, io, kAll); }

}  // namespace

PYC_ALLREDUCE(
    "rabenseifner", allreduce_rabenseifner, .steps = "log2 P + K, +2 if P is not 2^k; K = log2 P, or rabenseifner:K",
    .bytes = "2 S (P-1)/P", .reference = "Rabenseifner 2004", .is_uniform = false,
    .course = [](Rank size, std::size_t count) { return course_of_halving(size, count, kAll); },
    .parts = [](Rank size) { return std::bit_floor(static_cast<std::size_t>(size)); }, .variant = halving_of,
    .variants =
        [](Rank size) {
          std::vector<Rank> all;
          for (Rank k = 1; k <= log2_of(static_cast<std::size_t>(size)); ++k) all.push_back(k);
          return all;
        });

}  // namespace pyc
