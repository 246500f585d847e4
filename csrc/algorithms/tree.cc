// Allreduce on one tree: reduce up to the root, broadcast down again.
//
// A k-nomial tree of a high degree: few steps, and the fewest messages possible, 2(P-1) in all. That makes it the
// cheapest for short data where ranks share cores, since what costs there is waking ranks. The root computes every
// result, so its bits are the same everywhere.
//
// Steps: at most 2 ceil(log_k P), k = 32. Bytes sent per rank: S up, and S to each child (31 S at most levels).
#include "algorithms/registry.h"
#include "core/patterns.h"

namespace pyc {

static void allreduce_tree(ScheduleBuilder& s, Operands io) {
  constexpr Rank kRadix = 32;
  const KnomialTree tree(s.rank(), s.size(), kRadix);
  s.copy(io.in, io.out);
  for (const Rank child : tree.children()) {
    const Slice incoming = s.buffer(io.out.count, "incoming");  // one each, so that children need not wait in line
    s.recv(incoming, child);
    s.reduce(incoming, io.out);
  }
  if (!tree.is_root()) {
    s.send(io.out, tree.parent());
    s.recv(io.out, tree.parent());
  }
  for (const Rank child : tree.children()) s.send(io.out, child);
}

PYC_ALLREDUCE("tree", allreduce_tree, .steps = "<= 2 ceil(log_32 P)", .bytes = "S, and S to each child",
              .reference = "k-nomial trees; see Bruck et al. 1997");

}  // namespace pyc
