// Two ways to make a round that any rank starts reach every rank. In both, a rank forwards the token exactly once to
// each of its out-neighbours, no matter which ranks started and how many. So every posted receive is matched in every
// round, and nothing is ever cancelled.
//
// Dissemination. Rank r has the out-neighbours r+1, r+2, r+4, ... and, as soon as it is active, sends each one token:
// from any initiator that is a binomial tree.
//   Reference: eager-SGD section 4.1.1; Hensgen, Finkel, Manber (1988).
//   Steps: ceil(log2 P). Tokens: P ceil(log2 P).
//
// Tree. Tokens flow down a k-nomial tree only. An initiator that is not the root also asks the root to start, by an
// active message outside the plan. That takes one step more and log2 P times fewer tokens, which counts where ranks
// share cores.
//   Steps: 1 + ceil(log_k P). Tokens: P - 1, and an active message for each rank that starts.
#include "algorithms/activation.h"

#include <stdexcept>

#include "core/patterns.h"

namespace pyc {
namespace {

constexpr Rank kRadix = 32;

/// An or-join of the trigger and the tokens of `sources`; then a token to each of `targets`.
Activation relay(ScheduleBuilder& s, const std::vector<Rank>& sources, const std::vector<Rank>& targets, Rank root) {
  const OpId start = s.trigger("start");
  std::vector<OpId> causes{start};
  for (const Rank source : sources) causes.push_back(s.recv(s.buffer(1, "token"), source));
  const OpId active = s.join("active", causes, Need::one());
  s.gate(active);
  const Slice token = s.buffer(1, "token");
  for (const Rank target : targets) s.send(token, target);
  s.ungate();
  return {start, active, root};
}

}  // namespace

Activation activate_by_dissemination(ScheduleBuilder& s) {
  std::vector<Rank> sources;
  std::vector<Rank> targets;
  for (Rank distance = 1; distance < s.size(); distance *= 2) {
    sources.push_back(ring_neighbour(s.rank(), -distance, s.size()));
    targets.push_back(ring_neighbour(s.rank(), distance, s.size()));
  }
  return relay(s, sources, targets, kNoRank);
}

Activation activate_by_tree(ScheduleBuilder& s) {
  const KnomialTree tree(s.rank(), s.size(), kRadix);
  std::vector<Rank> sources;
  if (!tree.is_root()) sources.push_back(tree.parent());
  return relay(s, sources, tree.children(), 0);
}

Activation activate(const std::string& how, ScheduleBuilder& s) {
  if (how == "dissemination") return activate_by_dissemination(s);
  if (how == "tree") return activate_by_tree(s);
  throw std::invalid_argument("activation: expected 'dissemination' or 'tree', got '" + how + "'");
}

}  // namespace pyc
