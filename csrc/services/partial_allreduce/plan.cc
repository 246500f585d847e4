#include "services/partial_allreduce/plan.h"

#include <algorithm>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "algorithms/activation.h"
#include "algorithms/registry.h"
#include "algorithms/staged_allreduce.h"

namespace pyc {
namespace {

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
  // The result also waits for receives that do not lead to it: the next round posts the same receives, and a transport
  // takes one message with payload at a time from a peer and tag.
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
          .asks = activated.asks,
          .root = activated.root,
          .staging = {}};
}

}  // namespace

PartialAllreducePlan plan_partial_allreduce(const std::string& activation, const std::string& algorithm, Rank node,
                                            Rank nodes, std::size_t count) {
  return plan_of(activation, node, nodes, count,
                 [&](ScheduleBuilder& s, const Slice& data) { find_allreduce(algorithm).build(s, {data, data}); });
}

PartialAllreducePlan plan_staged_allreduce(const std::string& activation, const std::string& algorithm, Rank node,
                                           Rank nodes, std::size_t count, std::size_t piece) {
  StagedAllreduce staged{};
  PartialAllreducePlan plan = plan_of(activation, node, nodes, count, [&](ScheduleBuilder& s, const Slice& data) {
    staged = build_staged_allreduce(s, algorithm, data, piece);
  });
  plan.staging = staged.staging;
  plan.pieces = staged.pieces;
  return plan;
}

}  // namespace pyc
