// Allreduce on one tree: reduce up to the root, broadcast down again.
//
// The tree is optimal in the postal model: a message arrives K sends after its sender begins it, and no rank that could
// send is idle. "tree:1" is a binomial tree, "tree:K" with K >= P a star. K = (L + 2 o) / o is best for short data with
// one core per rank. "tree" is "tree:32", which has few steps. It is the cheapest for short data if ranks share cores,
// because the cost there is waking ranks. All trees send the fewest messages possible, 2(P-1). The root computes every
// result, so its bits are the same on all ranks. A rank reduces its children's data in the expected order of arrival,
// the reverse of the order of sending down.
//
// Reference: Bar-Noy, Kipnis, "Designing broadcasting algorithms in the postal model" (1994).
// Steps: 2 for P <= K + 2, and at most 2 log2 P. Bytes sent per rank: S up, and S to each child.
#include "algorithms/registry.h"
#include "core/patterns.h"

namespace pyc {
namespace {

void build_tree(ScheduleBuilder& s, Operands io, Rank latency) {
  constexpr std::size_t kShort = 16384;  // elements
  constexpr std::size_t kLandings = 2;   // receives into one while the other is reduced
  const PostalTree tree(s.rank(), s.size(), latency);
  s.copy(io.in, io.out);
  // Short data has a buffer for each child. Long data uses few buffers in rotation, so that memory stays bounded. A
  // child without data holds a buffer only for one short message.
  const std::vector<Rank>& children = tree.children();
  const std::size_t limit = io.out.count <= kShort ? children.size() : kLandings;
  std::vector<Slice> landings;
  for (std::size_t i = 0; i < children.size(); ++i) {
    if (landings.size() < limit) landings.push_back(s.buffer(io.out.count, "incoming"));
    const Slice incoming = landings[i % landings.size()];
    s.recv(incoming, children[children.size() - 1 - i]);
    s.reduce(incoming, io.out);
  }
  if (!tree.is_root()) {
    s.send(io.out, tree.parent());
    s.recv(io.out, tree.parent());
  }
  for (const Rank child : children) s.send(io.out, child);
}

Course course_of_tree(Rank size, std::size_t count, Rank latency) {
  const auto elements = static_cast<double>(count);
  return {up_a_tree(size, latency, elements), down_a_tree(size, latency, elements)};
}

AllreduceAlgorithm tree_of(Rank latency) {
  return {.name = "tree:" + std::to_string(latency),
          .build = [=](ScheduleBuilder& s, Operands io) { build_tree(s, io, latency); },
          .steps = {},
          .bytes = {},
          .reference = {},
          .is_uniform = true,
          .course = [=](Rank size, std::size_t count) { return course_of_tree(size, count, latency); },
          .parts = [](Rank) { return std::size_t{1}; }};
}

void allreduce_tree(ScheduleBuilder& s, Operands io) { build_tree(s, io, PostalTree::kFewSteps); }

}  // namespace

PYC_ALLREDUCE(
    "tree", allreduce_tree, .steps = "2 if P <= K + 2, at most 2 log2 P; K = 32, or tree:K",
    .bytes = "S, and S to each child", .reference = "postal trees, Bar-Noy, Kipnis 1994", .is_uniform = true,
    .course = [](Rank size, std::size_t count) { return course_of_tree(size, count, PostalTree::kFewSteps); },
    .parts = [](Rank) { return std::size_t{1}; }, .variant = tree_of,
    .variants = [](Rank) -> std::vector<Rank> { return {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64}; });

}  // namespace pyc
