// Allreduce by recursive halving and doubling: a reduce-scatter, then an allgather.
//
// Halving: in each step a rank exchanges half of the range it is still responsible for with a peer at half the previous
// distance, and reduces the half that it keeps; it ends with one of 2^k parts complete. Doubling: the same peers in
// reverse order exchange what is complete. Extra ranks fold onto a partner as in recursive doubling.
//
// Reference: Rabenseifner, "Optimization of collective reduction operations" (2004).
// Steps: 2 floor(log2 P), 2 more if P is not a power of two. Bytes sent per rank: 2 S (P'-1)/P', P' the largest power
// of two in P (S more for folded pairs). With fewer elements than 2^k parts it falls back to recursive doubling.
#include "algorithms/recursive_doubling.h"
#include "algorithms/registry.h"
#include "core/patterns.h"

namespace pyc {

static void allreduce_rabenseifner(ScheduleBuilder& s, Operands io) {
  const Fold fold{s.rank(), s.size()};
  const auto parts = static_cast<std::size_t>(fold.core_size());
  if (s.size() == 1 || io.out.count < parts) return allreduce_recursive_doubling(s, io);

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

  /// Parts [first, first + n) of the vector.
  const auto range = [&](Rank first, Rank n) {
    const Interval head = balanced_part(io.out.count, parts, static_cast<std::size_t>(first));
    const Interval tail = balanced_part(io.out.count, parts, static_cast<std::size_t>(first + n - 1));
    return io.out.part(head.first, tail.first + tail.count - head.first);
  };
  Rank first = 0;  // this rank is responsible for parts [first, first + 2 * bit) before each halving step
  for (Rank bit = fold.core_size() / 2; bit >= 1; bit /= 2) {
    const Rank peer = fold.to_rank(fold.core_rank() ^ bit);
    const bool keeps_upper = (fold.core_rank() & bit) != 0;
    const Slice given = range(keeps_upper ? first : first + bit, bit);
    if (keeps_upper) first += bit;
    const Slice kept = range(first, bit);
    const Slice landing = incoming.part(0, kept.count);
    s.send(given, peer);
    s.recv(landing, peer);
    s.reduce(landing, kept);
  }
  for (Rank bit = 1; bit < fold.core_size(); bit *= 2) {  // now parts [first, first + bit) are complete
    const Rank peer = fold.to_rank(fold.core_rank() ^ bit);
    s.send(range(first, bit), peer);
    s.recv(range(first ^ bit, bit), peer);
    first &= ~bit;
  }
  if (fold.has_extra()) s.send(io.out, fold.partner());
}

PYC_ALLREDUCE("rabenseifner", allreduce_rabenseifner, .steps = "2 floor(log2 P), +2 if P is not 2^k",
              .bytes = "2 S (P-1)/P", .reference = "Rabenseifner 2004");

}  // namespace pyc
