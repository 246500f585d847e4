// Schedules and their builder, for drawings and experiments.
#include "algorithms/registry.h"
#include "bindings/bindings.h"
#include "bindings/calls.h"
#include "schedule/builder.h"
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
  // Never freed, because the registry outlives the interpreter.
  auto* const function = new py::function(std::move(build));
  register_allreduce({.name = name,
                      .build =
                          [function](ScheduleBuilder& s, Operands io) {
                            const GilWithLocks with_locks;  // docs/design/progress.md, "The GIL"
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
  const py::class_<Slice> slice(m, "Slice");
  Definitions(slice)
      .property("buffer", [](const Slice& s) { return index(s.buffer); })
      .property("first", [](const Slice& s) { return s.first; })
      .property("count", [](const Slice& s) { return s.count; })
      .method<&Slice::part>("part", "offset, count")
      .method("__eq__", "other",
              [](const Slice& s, const py::object& other) {
                const auto not_implemented = py::reinterpret_borrow<py::object>(Py_NotImplemented);
                return py::isinstance<Slice>(other) ? py::object(py::bool_(s == other.cast<Slice>())) : not_implemented;
              })
      .method("__repr__", "", [](const Slice& s) {
        return "<Slice of buffer " + std::to_string(index(s.buffer)) + ": " + std::to_string(s.first) + " to " +
               std::to_string(s.end()) + ">";
      });

  slice.attr("__hash__") = py::none();

  const py::class_<Schedule> schedule(m, "Schedule");
  Definitions(schedule)
      .property<&Schedule::rank>("rank")
      .property<&Schedule::size>("size")
      .property<&list_ops>("ops")
      .property<&Schedule::edges>("edges")
      .method<&Schedule::text>("text", "")
      .method<&Schedule::dot>("dot", "")
      .method<&Schedule::text>("__str__", "");

  const py::class_<ScheduleBuilder> schedule_builder(m, "ScheduleBuilder");
  ClassDefinitions(schedule_builder)
      .constructor("rank, size", [](Rank rank, Rank size) { return std::make_unique<ScheduleBuilder>(rank, size); })
      .property<&ScheduleBuilder::rank>("rank")
      .property<&ScheduleBuilder::size>("size")
      .method<&ScheduleBuilder::buffer>("buffer", "count, name=''")
      .method("send", "source, to", [](ScheduleBuilder& s, Slice from, Rank to) { return index(s.send(from, to)); })
      .method("recv", "into, source",
              [](ScheduleBuilder& s, Slice into, Rank from) { return index(s.recv(into, from)); })
      .method("reduce", "source, into",
              [](ScheduleBuilder& s, Slice from, Slice into) { return index(s.reduce(from, into)); })
      .method<&ScheduleBuilder::copy>("copy", "source, into")
      .method("trigger", "name", [](ScheduleBuilder& s, std::string name) { return index(s.trigger(std::move(name))); })
      .method("join", "name, predecessors, need='all'",
              [](ScheduleBuilder& s, std::string name, const std::vector<std::uint32_t>& predecessors,
                 const py::object& n) { return index(s.join(std::move(name), ops(predecessors), need(n))); })
      .method("signal", "name, predecessors",
              [](ScheduleBuilder& s, std::string name, const std::vector<std::uint32_t>& predecessors) {
                return index(s.signal(std::move(name), ops(predecessors)));
              })
      .method("gate", "op", [](ScheduleBuilder& s, std::uint32_t id) { s.gate(op(id)); })
      .method<&ScheduleBuilder::ungate>("ungate", "")
      .method("build", "", [](ScheduleBuilder& s) { return std::move(s).build(); });

  Definitions(m).function<&list_algorithms>("algorithms", "");
  Definitions(m).function<&plan_allreduce>("plan_allreduce", "algorithm, rank, size, count");
  Definitions(m).function(
      "plan_partial_allreduce", "algorithm, rank, size, count, activation='tree'",
      [](const std::string& algorithm, Rank rank, Rank size, std::size_t count, const std::string& activation) {
        return plan_partial_allreduce(activation, algorithm, rank, size, count).schedule;
      });
  Definitions(m).function("plan_staged_allreduce", "algorithm, rank, size, count, piece, activation='tree'",
                          [](const std::string& algorithm, Rank rank, Rank size, std::size_t count, std::size_t piece,
                             const std::string& activation) {
                            return plan_staged_allreduce(activation, algorithm, rank, size, count, piece).schedule;
                          });
  Definitions(m).function<&register_python_algorithm>("register_algorithm", "name, build");
}

}  // namespace pyc
