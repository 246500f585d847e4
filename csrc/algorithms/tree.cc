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
  constexpr std::size_t kShort = 16384;  // elements
  constexpr std::size_t kLandings = 4;
  const KnomialTree tree(s.rank(), s.size(), kRadix);
  s.copy(io.in, io.out);
  // Short data lands in a buffer for each child. Long data takes turns on a few: memory stays bounded, and a child that
  // has nothing holds its turn for one short message only.
  const std::vector<Rank> children = tree.children();
  const std::size_t limit = io.out.count <= kShort ? children.size() : kLandings;
  std::vector<Slice> landings;
  for (std::size_t i = 0; i < children.size(); ++i) {
    if (landings.size() < limit) landings.push_back(s.buffer(io.out.count, "incoming"));
    const Slice incoming = landings[i % landings.size()];
    s.recv(incoming, children[i]);
    s.reduce(incoming, io.out);
  }
  if (!tree.is_root()) {
    s.send(io.out, tree.parent());
    s.recv(io.out, tree.parent());
  }
  for (const Rank child : children) s.send(io.out, child);
}

PYC_ALLREDUCE("tree", allreduce_tree, .steps = "<= 2 ceil(log_32 P)", .bytes = "S, and S to each child",
              .reference = "k-nomial trees; see Bruck et al. 1997", .is_uniform = true);

}  // namespace pyc
