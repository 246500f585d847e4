// The group generator, without the service around it: for tests, models and expected matrices.
#include "bindings/bindings.h"
#include "groups/closed_loop.h"
#include "groups/generator.h"

namespace pyc {
namespace {

using Now = std::optional<Seconds>;

/// A grant that owns its members.
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
  py::class_<BoundGrant>(m, "Grant")
      .def_property_readonly("sequence", [](const BoundGrant& g) { return g.grant.sequence; })
      .def_property_readonly("members", [](const BoundGrant& g) { return g.members; })
      .def_property_readonly("initiator", [](const BoundGrant& g) { return g.grant.initiator; })
      .def_property_readonly("conflicts", [](const BoundGrant& g) { return g.grant.conflicts; })
      .def(
          "answers", [](const BoundGrant& g, Rank member) { return g.grant.answers(member); }, py::arg("member"))
      .def("__repr__", &text_of);
}

void bind_generator(py::module_& m) {
  using G = GroupGenerator;
  py::class_<G>(m, "GroupGenerator")
      .def(py::init([](std::vector<Rank> node_of, Rank size, std::uint64_t seed, bool group_buffer,
                       bool global_division, bool inter_intra, std::int64_t slowdown_threshold, bool punctual,
                       double tolerance, double patience, std::int32_t connectivity) {
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
           }),
           py::arg("node_of"), py::kw_only(), py::arg("size") = 3, py::arg("seed") = 0, py::arg("group_buffer") = true,
           py::arg("global_division") = false, py::arg("inter_intra") = false, py::arg("slowdown_threshold") = 0,
           py::arg("punctual") = false, py::arg("tolerance") = 0.1, py::arg("patience") = 1.0,
           py::arg("connectivity") = 0)
      .def(
          "request",
          [](G& g, Rank worker, Now now) {
            std::vector<Grant> started;
            g.request(worker, started, now);
            return list_of(started);
          },
          py::arg("worker"), py::arg("now") = py::none())
      .def(
          "propose",
          [](G& g, Rank worker, const std::vector<Rank>& group, Now now) {
            std::vector<Grant> started;
            g.propose(worker, group, started, now);
            return list_of(started);
          },
          py::arg("worker"), py::arg("group"), py::arg("now") = py::none())
      .def(
          "acknowledge",
          [](G& g, Rank worker, Sequence sequence, Now now) {
            std::vector<Grant> started;
            g.acknowledge(worker, sequence, started, now);
            return list_of(started);
          },
          py::arg("worker"), py::arg("sequence"), py::arg("now") = py::none())
      .def("leave", &G::leave, py::arg("worker"))
      .def_property_readonly("finished", &G::finished)
      .def_property_readonly("size", &G::size)
      .def_property_readonly("generated", &G::generated)
      .def_property_readonly("alive", &G::alive)
      .def_property_readonly("locks",
                             [](const G& g) {
                               py::tuple all(static_cast<std::size_t>(g.size()));
                               for (Rank r = 0; r < g.size(); ++r) all[static_cast<std::size_t>(r)] = g.is_locked(r);
                               return all;
                             })
      .def("is_asking", &G::is_asking, py::arg("worker"))
      .def("groups_of", &G::groups_of, py::arg("worker"))
      .def(
          "describe", [](const G& g, std::optional<Rank> first) { return g.describe(first.value_or(kNoRank)); },
          py::arg("first") = py::none())
      .def("run_closed_loop", &run_closed_loop, py::arg("requests"), py::arg("seed") = 0);
}

}  // namespace

void bind_groups(py::module_& m) {
  bind_grant(m);
  bind_generator(m);
}

}  // namespace pyc
