// The group generator without its service, for tests, models and expected matrices.
#include "bindings/bindings.h"
#include "bindings/calls.h"
#include "groups/closed_loop.h"
#include "groups/generator.h"

namespace pyc {
namespace {

using Now = std::optional<Seconds>;

struct BoundGrant {
  Grant grant;
  py::tuple members;
};

py::tuple tuple_of(std::span<const Rank> ranks) {
  py::tuple all(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) all[i] = ranks[i];
  return all;
}

py::list list_of(const std::vector<Grant>& started) {
  py::list all;
  for (const Grant& grant : started) all.append(BoundGrant{grant, tuple_of(grant.members)});
  return all;
}

std::string text_of(const BoundGrant& g) {
  return "<Grant " + std::to_string(g.grant.sequence) + ": " + py::repr(g.members).cast<std::string>() + ">";
}

void bind_grant(py::module_& m) {
  const py::class_<BoundGrant> grant(m, "Grant");
  Definitions(grant)
      .property("sequence", [](const BoundGrant& g) { return g.grant.sequence; })
      .property("members", [](const BoundGrant& g) { return g.members; })
      .property("initiator", [](const BoundGrant& g) { return g.grant.initiator; })
      .property("conflicts", [](const BoundGrant& g) { return g.grant.conflicts; })
      .method("answers", "member", [](const BoundGrant& g, Rank member) { return g.grant.answers(member); })
      .method<&text_of>("__repr__", "");
}

void bind_generator(py::module_& m) {
  using G = GroupGenerator;
  const py::class_<G> group_generator(m, "GroupGenerator");
  ClassDefinitions(group_generator)
      .constructor(
          "node_of, *, size=3, seed=0, group_buffer=True, global_division=False, inter_intra=False, "
          "slowdown_threshold=0, punctual=False, tolerance=0.1, patience=1.0, connectivity=0",
          [](std::vector<Rank> node_of, Rank size, std::uint64_t seed, bool group_buffer, bool global_division,
             bool inter_intra, std::int64_t slowdown_threshold, bool punctual, double tolerance, double patience,
             std::int32_t connectivity) {
            return std::make_unique<G>(GroupOptions{.node_of = std::move(node_of),
                                                    .size = size,
                                                    .seed = seed,
                                                    .group_buffer = group_buffer,
                                                    .global_division = global_division,
                                                    .inter_intra = inter_intra,
                                                    .slowdown_threshold = slowdown_threshold,
                                                    .punctual = punctual,
                                                    .tolerance = tolerance,
                                                    .patience = patience,
                                                    .connectivity = connectivity});
          })
      .method("request", "worker, now=None",
              [](G& g, Rank worker, Now now) {
                std::vector<Grant> started;
                g.request(worker, started, now);
                return list_of(started);
              })
      .method("propose", "worker, group, now=None",
              [](G& g, Rank worker, const std::vector<Rank>& group, Now now) {
                std::vector<Grant> started;
                g.propose(worker, group, started, now);
                return list_of(started);
              })
      .method("acknowledge", "worker, sequence, now=None",
              [](G& g, Rank worker, Sequence sequence, Now now) {
                std::vector<Grant> started;
                g.acknowledge(worker, sequence, started, now);
                return list_of(started);
              })
      .method<&G::leave>("leave", "worker")
      .property<&G::finished>("finished")
      .property<&G::size>("size")
      .property<&G::generated>("generated")
      .property<&G::alive>("alive")
      .property("locks",
                [](const G& g) {
                  py::tuple all(static_cast<std::size_t>(g.size()));
                  for (Rank r = 0; r < g.size(); ++r) all[static_cast<std::size_t>(r)] = g.is_locked(r);
                  return all;
                })
      .method<&G::is_asking>("is_asking", "worker")
      .method<&G::groups_of>("groups_of", "worker")
      .method("describe", "first=None",
              [](const G& g, std::optional<Rank> first) { return g.describe(first.value_or(kNoRank)); })
      .method<&run_closed_loop>("run_closed_loop", "requests, seed=0");
}

}  // namespace

void bind_groups(py::module_& m) {
  bind_grant(m);
  bind_generator(m);
}

}  // namespace pyc
