// Allreduce by a star: everybody sends to rank 0, which reduces and sends the result back.
//
// Steps: 2. Bytes sent per rank: S; by rank 0 S (P-1).
#include "algorithms/registry.h"

namespace pyc {

static void allreduce_star(ScheduleBuilder& s, Operands io) {
  s.copy(io.in, io.out);
  if (s.rank() != 0) {
    s.send(io.out, 0);
    s.recv(io.out, 0);
    return;
  }
  for (Rank rank = 1; rank < s.size(); ++rank) {
    const Slice incoming = s.buffer(io.out.count, "incoming");
    s.recv(incoming, rank);
    s.reduce(incoming, io.out);
  }
  for (Rank rank = 1; rank < s.size(); ++rank) s.send(io.out, rank);
}

PYC_ALLREDUCE("star", allreduce_star, .steps = "2", .bytes = "S, of rank 0 S (P-1)", .reference = "");

}  // namespace pyc
