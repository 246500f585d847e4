#include "services/partial_allreduce/plan.h"

#include <algorithm>
#include <functional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "algorithms/activation.h"
#include "algorithms/registry.h"
#include "core/patterns.h"

namespace pyc {
namespace {

constexpr std::size_t kMostPieces = 8;  // of data that the algorithm does not cut itself: each costs a message more

/// `reduce` writes the allreduce in place on the data.
PartialAllreducePlan plan_of(const std::string& activation, Rank node, Rank nodes, std::size_t count,
                             const std::function<void(ScheduleBuilder&, const Slice&)>& reduce) {
  ScheduleBuilder s(node, nodes);
  const Slice data = s.buffer(count, "data");
  const Activation activated = activate(activation, s);
  const OpId active = s.signal("activated", std::span(&activated.active, 1));
  const OpId release = s.trigger("release");
  const OpId both[] = {activated.active, release};
  const OpId taken = s.join("taken", both);
  s.gate(taken);
  reduce(s, data);
  s.ungate();
  // Also behind receives that do not lead to the result, if an algorithm has any: the next round posts the same ones,
  // and a transport takes one message with payload at a time from a peer and tag.
  std::vector<OpId> last = s.receives_after(taken);
  for (const OpId writer : s.writers(data)) {
    if (std::find(last.begin(), last.end(), writer) == last.end()) last.push_back(writer);
  }
  last.push_back(taken);
  const OpId result = s.signal("result", last);
  return {.schedule = std::move(s).build(),
          .data = data,
          .start = activated.start,
          .active = active,
          .release = release,
          .result = result,
          .root = activated.root,
          .staging = {}};
}

std::vector<Interval> equal_pieces(std::size_t count, std::size_t piece) {
  const std::size_t pieces = std::clamp<std::size_t>(count / piece, 1, kMostPieces);
  std::vector<Interval> all;
  for (std::size_t i = 0; i < pieces; ++i) all.push_back(balanced_part(count, pieces, i));
  return all;
}

/// As the algorithm cuts the data on this node, short pieces joined, in the order in which it comes to them.
std::vector<Interval> pieces_of(const AllreduceAlgorithm& algorithm, Rank node, Rank nodes, std::size_t count,
                                std::size_t piece) {
  ScheduleBuilder s(node, nodes);
  const Slice data = s.buffer(count, "data");
  algorithm.build(s, {data, data});
  const Schedule plan = std::move(s).build();
  std::set<std::size_t> cuts{0, count};
  std::vector<Slice> touched;
  for (const Op& op : plan.ops()) {
    for (const Access& access : accesses(op.action)) {
      if (access.slice.buffer != data.buffer) continue;
      touched.push_back(access.slice);
      cuts.insert({access.slice.first, access.slice.end()});
    }
  }
  std::vector<Interval> pieces;
  std::size_t first = 0;
  for (const std::size_t cut : cuts) {
    if (cut - first < piece && cut < count) continue;
    if (cut > first) pieces.push_back({first, cut - first});
    first = cut;
  }
  const auto comes_to = [&](const Interval& one) {
    const Slice slice = data.part(one.first, one.count);
    return std::find_if(touched.begin(), touched.end(), [&](const Slice& other) { return overlap(slice, other); });
  };
  std::stable_sort(pieces.begin(), pieces.end(),
                   [&](const Interval& a, const Interval& b) { return comes_to(a) < comes_to(b); });
  return pieces;
}

}  // namespace

PartialAllreducePlan plan_partial_allreduce(const std::string& activation, const std::string& algorithm, Rank node,
                                            Rank nodes, std::size_t count) {
  return plan_of(activation, node, nodes, count,
                 [&](ScheduleBuilder& s, const Slice& data) { find_allreduce(algorithm).build(s, {data, data}); });
}

PartialAllreducePlan plan_staged_allreduce(const std::string& activation, const std::string& algorithm, Rank node,
                                           Rank nodes, std::size_t count, std::size_t piece) {
  const AllreduceAlgorithm& allreduce = find_allreduce(algorithm);
  const std::vector<Interval> pieces =
      allreduce.is_uniform ? equal_pieces(count, piece) : pieces_of(allreduce, node, nodes, count, piece);
  std::optional<Slice> staging;
  PartialAllreducePlan plan = plan_of(activation, node, nodes, count, [&](ScheduleBuilder& s, const Slice& data) {
    staging = s.buffer(count, "staging");
    for (const Interval& one : pieces) s.copy(data.part(one.first, one.count), staging->part(one.first, one.count));
    if (allreduce.is_uniform) {
      for (const Interval& one : pieces) {
        const Slice part = staging->part(one.first, one.count);
        allreduce.build(s, {part, part});
      }
    } else {
      allreduce.build(s, {*staging, *staging});
    }
    for (const Interval& one : pieces) s.copy(staging->part(one.first, one.count), data.part(one.first, one.count));
  });
  plan.staging = staging;
  plan.pieces = pieces.size();
  return plan;
}

PartialAllreducePlan plan_communicator_allreduce(const std::string& activation, Rank node, Rank nodes) {
  return plan_staged_allreduce(activation, "recursive_doubling", node, nodes, 1, 1);
}

}  // namespace pyc
