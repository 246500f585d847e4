#include "algorithms/recursive_doubling.h"

#include "algorithms/registry.h"
#include "core/patterns.h"

namespace pyc {

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

PYC_ALLREDUCE("recursive_doubling", allreduce_recursive_doubling, .steps = "floor(log2 P), +2 if P is not 2^k",
              .bytes = "S log2 P", .reference = "Thakur, Rabenseifner, Gropp 2005", .is_uniform = true);

}  // namespace pyc
