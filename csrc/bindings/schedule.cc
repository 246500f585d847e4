// Schedules, their builder and their checker, for tests, drawings and experiments.
#include "algorithms/registry.h"
#include "bindings/bindings.h"
#include "schedule/builder.h"
#include "schedule/checker.h"
#include "services/partial_allreduce/plan.h"

namespace pyc {
namespace {

OpId op(std::uint32_t id) { return OpId(id); }

std::vector<OpId> ops(const std::vector<std::uint32_t>& ids) {
  std::vector<OpId> all;
  for (const std::uint32_t id : ids) all.push_back(OpId(id));
  return all;
}

Need need(const py::object& value) {
  if (!py::isinstance<py::str>(value)) return Need::some(value.cast<std::uint32_t>());
  const auto word = value.cast<std::string>();
  if (word == "all") return Need::all();
  if (word == "one") return Need::one();
  throw std::invalid_argument("need: expected \"all\", \"one\" or a number, got '" + word + "'");
}

const char* kind_of(const Action& action) {
  constexpr const char* kinds[] = {"send", "recv", "reduce", "copy", "join", "trigger", "signal"};
  return kinds[action.index()];
}

py::list list_ops(const Schedule& schedule) {
  py::list all;
  for (std::size_t i = 0; i < schedule.ops().size(); ++i) {
    const Op& o = schedule.ops()[i];
    py::dict entry;
    entry["id"] = i;
    entry["kind"] = kind_of(o.action);
    entry["name"] = o.name;
    entry["need"] = o.need;
    entry["predecessors"] = o.predecessors;
    std::vector<std::size_t> next;
    for (const OpId n : o.next) next.push_back(index(n));
    entry["next"] = next;
    py::list slices;
    for (const Access& access : accesses(o.action)) slices.append(access.slice);
    entry["slices"] = slices;
    if (const auto* send = std::get_if<Send>(&o.action)) entry["peer"] = send->to;
    if (const auto* recv = std::get_if<Recv>(&o.action)) entry["peer"] = recv->from;
    all.append(entry);
  }
  return all;
}

py::list list_algorithms() {
  py::list all;
  for (const AllreduceAlgorithm& a : allreduce_algorithms()) {
    py::dict entry;
    entry["name"] = a.name;
    entry["steps"] = a.steps;
    entry["bytes"] = a.bytes;
    entry["reference"] = a.reference;
    entry["has_variants"] = static_cast<bool>(a.variant);
    all.append(entry);
  }
  return all;
}

Schedule plan_allreduce(const std::string& algorithm, Rank rank, Rank size, std::size_t count) {
  ScheduleBuilder s(rank, size);
  const Slice in = s.buffer(count, "in");
  const Slice out = s.buffer(count, "out");
  find_allreduce(algorithm).build(s, {in, out});
  return std::move(s).build();
}

void register_python_algorithm(const std::string& name, py::function build) {
  // Kept for the life of the process: the registry outlives the interpreter.
  auto* const function = new py::function(std::move(build));
  register_allreduce({.name = name,
                      .build =
                          [function](ScheduleBuilder& s, Operands io) {
                            const GilHeld gil;
                            never_unwound(
                                [&] { (*function)(py::cast(&s, py::return_value_policy::reference), io.in, io.out); });
                          },
                      .steps = "",
                      .bytes = "",
                      .reference = "written in Python"});
}

}  // namespace

void bind_schedule(py::module_& m) {
  py::class_<Slice>(m, "Slice")
      .def_property_readonly("buffer", [](const Slice& s) { return index(s.buffer); })
      .def_readonly("first", &Slice::first)
      .def_readonly("count", &Slice::count)
      .def("part", &Slice::part, py::arg("offset"), py::arg("count"))
      .def(py::self == py::self)
      .def("__repr__", [](const Slice& s) {
        return "<Slice of buffer " + std::to_string(index(s.buffer)) + ": " + std::to_string(s.first) + " to " +
               std::to_string(s.end()) + ">";
      });

  py::class_<Schedule>(m, "Schedule")
      .def_property_readonly("rank", &Schedule::rank)
      .def_property_readonly("size", &Schedule::size)
      .def_property_readonly("ops", &list_ops)
      .def_property_readonly("edges", &Schedule::edges)
      .def("text", &Schedule::text)
      .def("dot", &Schedule::dot)
      .def(
          "without_edge",
          [](const Schedule& s, std::uint32_t before, std::uint32_t after) {
            return s.without_edge(op(before), op(after));
          },
          py::arg("before"), py::arg("after"))
      .def(
          "with_need", [](const Schedule& s, std::uint32_t id, std::uint32_t n) { return s.with_need(op(id), n); },
          py::arg("op"), py::arg("need"))
      .def("__str__", &Schedule::text);

  py::class_<ScheduleBuilder>(m, "ScheduleBuilder")
      .def(py::init<Rank, Rank>(), py::arg("rank"), py::arg("size"))
      .def_property_readonly("rank", &ScheduleBuilder::rank)
      .def_property_readonly("size", &ScheduleBuilder::size)
      .def("buffer", &ScheduleBuilder::buffer, py::arg("count"), py::arg("name") = "")
      .def(
          "send", [](ScheduleBuilder& s, Slice from, Rank to) { return index(s.send(from, to)); }, py::arg("source"),
          py::arg("to"))
      .def(
          "recv", [](ScheduleBuilder& s, Slice into, Rank from) { return index(s.recv(into, from)); }, py::arg("into"),
          py::arg("source"))
      .def(
          "reduce", [](ScheduleBuilder& s, Slice from, Slice into) { return index(s.reduce(from, into)); },
          py::arg("source"), py::arg("into"))
      .def("copy", &ScheduleBuilder::copy, py::arg("source"), py::arg("into"))
      .def("trigger", [](ScheduleBuilder& s, std::string name) { return index(s.trigger(std::move(name))); })
      .def(
          "join",
          [](ScheduleBuilder& s, std::string name, const std::vector<std::uint32_t>& predecessors,
             const py::object& n) { return index(s.join(std::move(name), ops(predecessors), need(n))); },
          py::arg("name"), py::arg("predecessors"), py::arg("need") = "all")
      .def(
          "signal",
          [](ScheduleBuilder& s, std::string name, const std::vector<std::uint32_t>& predecessors) {
            return index(s.signal(std::move(name), ops(predecessors)));
          },
          py::arg("name"), py::arg("predecessors"))
      .def(
          "gate", [](ScheduleBuilder& s, std::uint32_t id) { s.gate(op(id)); }, py::arg("op"))
      .def("ungate", &ScheduleBuilder::ungate)
      .def("build", [](ScheduleBuilder& s) { return std::move(s).build(); });

  m.def("algorithms", &list_algorithms);
  m.def("plan_allreduce", &plan_allreduce, py::arg("algorithm"), py::arg("rank"), py::arg("size"), py::arg("count"));
  m.def(
      "plan_partial_allreduce",
      [](const std::string& algorithm, Rank rank, Rank size, std::size_t count, const std::string& activation) {
        return plan_partial_allreduce(activation, algorithm, rank, size, count).schedule;
      },
      py::arg("algorithm"), py::arg("rank"), py::arg("size"), py::arg("count"), py::arg("activation") = "tree");
  m.def(
      "plan_staged_allreduce",
      [](const std::string& algorithm, Rank rank, Rank size, std::size_t count, std::size_t piece,
         const std::string& activation) {
        return plan_staged_allreduce(activation, algorithm, rank, size, count, piece).schedule;
      },
      py::arg("algorithm"), py::arg("rank"), py::arg("size"), py::arg("count"), py::arg("piece"),
      py::arg("activation") = "tree");
  using Plans = std::vector<Schedule>;
  using Ranks = std::vector<Rank>;
  m.def(
      "check_allreduce",
      [](const Plans& plans, std::uint64_t seed, bool refire) {
        return check_allreduce(plans, {.seed = seed, .refire = refire});
      },
      py::arg("plans"), py::kw_only(), py::arg("seed") = 0, py::arg("refire") = false);
  m.def(
      "check_partial_allreduce",
      [](const Plans& plans, const Ranks& starters, const Ranks& contributors, std::uint64_t seed, bool refire) {
        return check_partial_allreduce(plans, starters, contributors, {.seed = seed, .refire = refire});
      },
      py::arg("plans"), py::arg("starters"), py::arg("contributors"), py::kw_only(), py::arg("seed") = 0,
      py::arg("refire") = false);
  m.def(
      "check_activation",
      [](const Plans& plans, const Ranks& starters, std::uint64_t seed, bool refire) {
        return check_activation(plans, starters, {.seed = seed, .refire = refire});
      },
      py::arg("plans"), py::arg("starters"), py::kw_only(), py::arg("seed") = 0, py::arg("refire") = false);
  m.def("register_algorithm", &register_python_algorithm, py::arg("name"), py::arg("build"));
}

}  // namespace pyc
