// In _testing: the checker of plans, and plans that it must reject.
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/testing.h"
#include "testing/checker.h"

namespace pyc {

void bind_testing_plans(py::module_& t) {
  using Plans = std::vector<Schedule>;
  using Ranks = std::vector<Rank>;
  t.def(
      "check_allreduce",
      [](const Plans& plans, std::uint64_t seed, bool refire) {
        return check_allreduce(plans, {.seed = seed, .refire = refire});
      },
      py::arg("plans"), py::kw_only(), py::arg("seed") = 0, py::arg("refire") = false);
  t.def(
      "check_partial_allreduce",
      [](const Plans& plans, const Ranks& starters, const Ranks& contributors, std::uint64_t seed, bool refire) {
        return check_partial_allreduce(plans, starters, contributors, {.seed = seed, .refire = refire});
      },
      py::arg("plans"), py::arg("starters"), py::arg("contributors"), py::kw_only(), py::arg("seed") = 0,
      py::arg("refire") = false);
  t.def(
      "check_activation",
      [](const Plans& plans, const Ranks& starters, std::uint64_t seed, bool refire) {
        return check_activation(plans, starters, {.seed = seed, .refire = refire});
      },
      py::arg("plans"), py::arg("starters"), py::kw_only(), py::arg("seed") = 0, py::arg("refire") = false);
  t.def(
      "without_edge",
      [](const Schedule& plan, std::uint32_t before, std::uint32_t after) {
        return plan.without_edge(OpId(before), OpId(after));
      },
      py::arg("plan"), py::arg("before"), py::arg("after"));
  t.def(
      "with_need",
      [](const Schedule& plan, std::uint32_t op, std::uint32_t need) { return plan.with_need(OpId(op), need); },
      py::arg("plan"), py::arg("op"), py::arg("need"));
}

}  // namespace pyc
