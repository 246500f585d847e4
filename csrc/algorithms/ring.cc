// Allreduce on a ring: a reduce-scatter, then an allgather.
//
// The vector is cut into P pieces. In step k of the first half, rank r sends piece r-k to its right, and adds the data
// from its left to its own piece r-k-1. After P-1 steps its last piece, r+1, contains all contributions. In the second
// half the complete pieces travel once around the ring.
//
// Reference: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms" (2009).
// Steps: 2(P-1). Bytes sent per rank: 2 S (P-1)/P, the least possible. With fewer elements than ranks, recursive
// doubling is used, which is faster.
#include "algorithms/recursive_doubling.h"
#include "algorithms/registry.h"
#include "core/patterns.h"

namespace pyc {

static void allreduce_ring(ScheduleBuilder& s, Operands io) {
  const Rank size = s.size();
  const auto pieces = static_cast<std::size_t>(size);
  if (size == 1 || io.out.count < pieces) return allreduce_recursive_doubling(s, io);

  const auto piece = [&](Rank distance) {
    const auto index = static_cast<std::size_t>(ring_neighbour(s.rank(), distance, size));
    const Interval part = balanced_part(io.out.count, pieces, index);
    return io.out.part(part.first, part.count);
  };
  const Rank right = ring_neighbour(s.rank(), 1, size);
  const Rank left = ring_neighbour(s.rank(), -1, size);
  // Two buffers: one piece arrives while the previous one is added.
  const std::size_t longest = balanced_part(io.out.count, pieces, 0).count;
  const Slice even = s.buffer(longest, "even");
  const Slice odd = size > 2 ? s.buffer(longest, "odd") : even;

  s.copy(io.in, io.out);
  for (Rank step = 0; step < size - 1; ++step) {
    s.send(piece(-step), right);
    const Slice mine = piece(-step - 1);  // one further left in each step: the left neighbor has just sent it
    const Slice landing = (step % 2 == 0 ? even : odd).part(0, mine.count);
    s.recv(landing, left);
    s.reduce(landing, mine);
  }
  for (Rank step = 0; step < size - 1; ++step) {
    s.send(piece(1 - step), right);  // the first is r+1, which this rank completed above
    s.recv(piece(-step), left);
  }
}

static Course course_of_ring(Rank size, std::size_t count) {
  if (size == 1 || count < static_cast<std::size_t>(size)) return course_of_recursive_doubling(size, count);
  const double steps = size - 1;
  const double piece = static_cast<double>(count) / size;
  return {{{{.flights = steps, .sends = steps, .receives = steps, .elements = piece, .reduces = true},
            {.flights = steps, .sends = steps, .receives = steps, .elements = piece, .reduces = false}}}};
}

PYC_ALLREDUCE("ring", allreduce_ring, .steps = "2(P-1)", .bytes = "2 S (P-1)/P", .reference = "Patarasuk, Yuan 2009",
              .is_uniform = false, .course = course_of_ring);

}  // namespace pyc
