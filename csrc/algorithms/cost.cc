#include "algorithms/cost.h"

#include <algorithm>

#include "core/patterns.h"

namespace pyc {
namespace {

/// A chain of d messages, each behind p others of its sender, takes d * latency + sum(p) sends: at most the tree's
/// duration. `leg` makes a leg of d and the sends or receives in all.
template <class MakeLeg>
Phase along_a_tree(Rank size, Rank latency, MakeLeg leg) {
  Phase chains{{}};
  const Rank duration = PostalTree::duration(size, latency);
  for (Rank depth = 1; depth * latency <= duration; ++depth) {
    chains.push_back({leg(double(depth), double(duration - depth * latency + depth))});
  }
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
