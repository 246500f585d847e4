// Two ways in which a round that any rank starts reaches all ranks. In both, a rank sends the token exactly once to
// each of its out-neighbors, whichever ranks have started. Every posted receive is therefore matched in every round,
// and nothing is ever canceled.
//
// Dissemination. Rank r has the out-neighbors r+1, r+2, r+4, ... As soon as it is active, it sends a token to each.
// From any initiator, the tokens form a binomial tree.
//   Reference: eager-SGD section 4.1.1; Hensgen, Finkel, Manber (1988).
//   Steps: ceil(log2 P). Tokens: P ceil(log2 P).
//
// Tree. Tokens flow down one tree, which is optimal in the postal model (see the algorithm "tree"). An initiator other
// than the root also asks a rank above it to start, by an active message outside the plan. That rank does the same, up
// to the root. At most 16 ranks ask the same rank, so that no messages queue if all start at once. This takes some more
// steps and log2 P times fewer tokens, which pays off if ranks share cores.
//   Steps: 1 + ceil(log16 P), and at most log2 P; 2 for P <= 17. Tokens: P - 1, and an active message for each rank
//   that starts.
#include "algorithms/activation.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <stdexcept>

#include "core/patterns.h"

namespace pyc {
namespace {

constexpr Rank kMostAsking = 16;

/// An or-join of the trigger and the tokens of `sources`; then a token to each of `targets`.
Activation relay(ScheduleBuilder& s, const std::vector<Rank>& sources, const std::vector<Rank>& targets, Rank asks,
                 Rank root) {
  const OpId start = s.trigger("start");
  std::vector<OpId> causes{start};
  for (const Rank source : sources) causes.push_back(s.recv(s.buffer(1, "token"), source));
  const OpId active = s.join("active", causes, Need::one());
  s.gate(active);
  const Slice token = s.buffer(1, "token");
  for (const Rank target : targets) s.send(token, target);
  s.ungate();
  return {start, active, asks, root};
}

/// The latency of a tree; nullopt for other activations.
std::optional<Rank> latency_of(const std::string& how) {
  if (how == "tree") return PostalTree::kFewSteps;
  if (!how.starts_with("tree:")) return std::nullopt;
  Rank latency = 0;
  const char* const end = how.data() + how.size();
  const auto parsed = std::from_chars(how.data() + 5, end, latency);
  if (parsed.ec != std::errc() || parsed.ptr != end || latency < 1) return std::nullopt;
  return latency;
}

Rank checked_latency(const std::string& how) {
  if (const std::optional<Rank> latency = latency_of(how)) return *latency;
  throw std::invalid_argument("activation: expected 'dissemination', 'tree' or 'tree:K', got '" + how + "'");
}

}  // namespace

Activation activate_by_dissemination(ScheduleBuilder& s) {
  std::vector<Rank> sources;
  std::vector<Rank> targets;
  for (Rank distance = 1; distance < s.size(); distance *= 2) {
    sources.push_back(ring_neighbour(s.rank(), -distance, s.size()));
    targets.push_back(ring_neighbour(s.rank(), distance, s.size()));
  }
  return relay(s, sources, targets, kNoRank, kNoRank);
}

Activation activate_by_tree(ScheduleBuilder& s, Rank latency) {
  const PostalTree tree(s.rank(), s.size(), latency);
  const CompleteTree asked(s.rank(), kMostAsking);
  std::vector<Rank> sources;
  if (!tree.is_root()) sources.push_back(tree.parent());
  return relay(s, sources, tree.children(), asked.is_root() ? kNoRank : asked.parent(), 0);
}

Activation activate(const std::string& how, ScheduleBuilder& s) {
  if (how == "dissemination") return activate_by_dissemination(s);
  const Rank latency = checked_latency(how);
  return activate_by_tree(s, latency);
}

std::vector<std::string> activation_candidates() {
  std::vector<std::string> all{"dissemination"};
  for (const Rank latency : {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32}) all.push_back("tree:" + std::to_string(latency));
  return all;
}

Course course_of_activation(const std::string& how, Rank size) {
  if (how == "dissemination") {
    Phase chains{{}};
    double tokens = 0;
    // A token makes one hop for each one-bit of the distance. The longest chains lead to distance size - 1, and to size
    // - 1 with one bit cleared and all lower bits set.
    for (Rank distance = 1; distance < size; distance *= 2) ++tokens;
    const auto add = [&](Rank to) {
      Leg leg;
      for (Rank k = 0; (to >> k) != 0; ++k) {
        if (((to >> k) & 1) == 0) continue;
        leg.flights += 1;
        leg.receives += 1;
        leg.sends += k + 1;
      }
      chains.push_back({leg});
    };
    if (size > 1) add(size - 1);
    for (Rank bit = 1; bit < size; bit *= 2) {
      if (((size - 1) & bit) != 0) add(((size - 1) & ~bit) | (bit - 1));
    }
    return {chains, {{{.sends = tokens, .receives = tokens}}}};
  }
  const Rank latency = checked_latency(how);
  double steps = 0;
  for (Rank rank = size - 1; rank > 0; rank = CompleteTree(rank, kMostAsking).parent()) ++steps;
  const auto children = static_cast<double>(PostalTree(0, size, latency).children().size());
  const double asking = std::min(size - 1, kMostAsking);
  return {{{{.flights = steps, .sends = steps, .receives = steps}}},
          down_a_tree(size, latency, 0),
          {{{.sends = children, .receives = asking}}}};
}

}  // namespace pyc
