#include "algorithms/staged_allreduce.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "algorithms/registry.h"
#include "core/patterns.h"

namespace pyc {
namespace {

constexpr std::size_t kMostPieces = 8;  // of data that the algorithm does not cut itself; each costs one more message

std::vector<Interval> equal_pieces(std::size_t count, std::size_t piece) {
  const std::size_t pieces = std::clamp<std::size_t>(count / piece, 1, kMostPieces);
  std::vector<Interval> all;
  for (std::size_t i = 0; i < pieces; ++i) all.push_back(balanced_part(count, pieces, i));
  return all;
}

/// The pieces into which the algorithm cuts the data on this rank, with short ones joined, in the order of their use.
std::vector<Interval> pieces_of(const AllreduceAlgorithm& algorithm, Rank rank, Rank size, std::size_t count,
                                std::size_t piece) {
  ScheduleBuilder s(rank, size);
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

StagedAllreduce build_staged_allreduce(ScheduleBuilder& s, const std::string& algorithm, const Slice& data,
                                       std::size_t piece) {
  const AllreduceAlgorithm allreduce = find_allreduce(algorithm);
  const std::vector<Interval> pieces = allreduce.is_uniform
                                           ? equal_pieces(data.count, piece)
                                           : pieces_of(allreduce, s.rank(), s.size(), data.count, piece);
  const Slice staging = s.buffer(data.count, "staging");
  for (const Interval& one : pieces) s.copy(data.part(one.first, one.count), staging.part(one.first, one.count));
  if (allreduce.is_uniform) {
    for (const Interval& one : pieces) {
      const Slice part = staging.part(one.first, one.count);
      allreduce.build(s, {part, part});
    }
  } else {
    allreduce.build(s, {staging, staging});
  }
  for (const Interval& one : pieces) s.copy(staging.part(one.first, one.count), data.part(one.first, one.count));
  return {staging, pieces.size()};
}

std::size_t most_pieces(std::size_t count, std::size_t piece) { return std::max(kMostPieces, count / piece + 1); }

}  // namespace pyc
