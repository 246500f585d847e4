#include "algorithms/cost.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "core/patterns.h"

namespace pyc {
namespace {

/// Cached, because costs are computed for many sizes of data.
std::vector<Rank> longest_ways(Rank size, Rank latency) {
  static std::mutex mutex;
  static std::map<std::pair<Rank, Rank>, std::vector<Rank>> known;
  const std::lock_guard lock(mutex);
  auto& found = known[{size, latency}];
  if (found.empty()) found = PostalTree::longest_ways(size, latency);
  return found;
}

/// A chain for each number of messages on the way. `leg` gets this number, and the sends (or receives) that they take.
template <class MakeLeg>
Phase along_a_tree(Rank size, Rank latency, MakeLeg leg) {
  Phase chains;
  const std::vector<Rank> ways = longest_ways(size, latency);
  for (std::size_t depth = 0; depth < ways.size(); ++depth) chains.push_back({leg(double(depth), double(ways[depth]))});
  return chains;
}

}  // namespace

Seconds cost_of(const Course& course, const MessageCosts& costs, std::size_t element_bytes) {
  Seconds total = 0;
  for (const Phase& phase : course) {
    Seconds slowest = 0;
    for (const Chain& chain : phase) {
      Seconds time = 0;
      for (const Leg& leg : chain) {
        const double bytes = leg.elements * static_cast<double>(element_bytes);
        time += leg.flights * costs.latency;
        time += leg.sends * (costs.overhead + costs.gap_per_byte * (costs.header_bytes + bytes));
        time += leg.receives * (costs.overhead + (leg.reduces ? costs.reduce_per_byte * bytes : 0));
      }
      slowest = std::max(slowest, time);
    }
    total += slowest;
  }
  return total;
}

Phase down_a_tree(Rank size, Rank latency, double elements) {
  return along_a_tree(size, latency, [=](double depth, double all) {
    return Leg{.flights = depth, .sends = all, .receives = depth, .elements = elements};
  });
}

Phase up_a_tree(Rank size, Rank latency, double elements) {
  return along_a_tree(size, latency, [=](double depth, double all) {
    return Leg{.flights = depth, .sends = depth, .receives = all, .elements = elements, .reduces = true};
  });
}

}  // namespace pyc
