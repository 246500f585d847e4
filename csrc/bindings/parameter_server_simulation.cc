// A parameter server in virtual time. Its history becomes lists of tuples.
#include "simulation/parameter_server_simulation.h"
#include "bindings/bindings.h"
#include "bindings/calls.h"
#include "bindings/parameter_server_options.h"

namespace pyc {
namespace {

ServerScript server_script_from(const py::kwargs& arguments) {
  const auto get = [&](const char* name) -> py::object { return arguments[name]; };
  ServerScript script;
  script.sync = sync_options_from(get("sync").cast<py::dict>());
  script.workers = get("workers").cast<std::size_t>();
  script.max_pushes = get("max_pushes").cast<std::size_t>();
  script.work = get("work").cast<std::vector<Seconds>>();
  script.values = get("values").cast<std::vector<double>>();
  script.slope = get("slope").cast<double>();
  script.pushes = get("pushes").cast<std::vector<std::uint64_t>>();
  script.vanishes = get("vanishes").cast<std::vector<std::uint64_t>>();
  using Absence = std::tuple<server::Worker, std::uint64_t, Seconds>;
  for (const auto& [worker, push, time] : get("absences").cast<std::vector<Absence>>()) {
    script.absences.push_back({worker, push, time});
  }
  script.gives_up = get("gives_up").cast<bool>();
  script.latency = get("latency").cast<Seconds>();
  script.max_events = get("max_events").cast<std::uint64_t>();
  return script;
}

py::list terms_from(const std::vector<ServerHistory::Term>& terms) {
  py::list out;
  for (const auto& term : terms) out.append(py::make_tuple(term.worker, term.push, term.delay, term.weight));
  return out;
}

struct TupleOf {
  py::tuple operator()(const ServerHistory::Push& p) const {
    const char* what = p.given_up ? "given up" : p.used ? "used" : "discarded";
    return py::make_tuple("push", p.time, p.worker, p.push, p.version, p.delay, what);
  }
  py::tuple operator()(const ServerHistory::Update& u) const {
    return py::make_tuple("update", u.time, u.weights, terms_from(u.terms));
  }
  py::tuple operator()(const ServerHistory::Release& r) const {
    return py::make_tuple("release", r.time, r.worker, r.clock, r.waited);
  }
  py::tuple operator()(const ServerHistory::Superstep& s) const {
    const py::object predicted = s.predicted == server::kUnknown ? py::object(py::none()) : py::cast(s.predicted);
    return py::make_tuple("superstep", s.end, s.length, s.slack, predicted, s.clocks);
  }
  py::tuple operator()(const ServerHistory::PresenceChange& p) const {
    constexpr const char* kNames[] = {"present", "missing", "left"};
    return py::make_tuple(kNames[static_cast<std::size_t>(p.presence)], p.time, p.worker);
  }
};

py::dict run_server(const py::kwargs& arguments) {
  const ServerScript script = server_script_from(arguments);
  const ServerHistory history = without_gil([&] { return simulate_server(script); });
  py::list entries;
  for (const ServerHistory::Entry& entry : history.entries) entries.append(std::visit(TupleOf{}, entry));
  py::dict out;
  out["entries"] = entries;
  out["clocks"] = history.clocks;
  out["gathered"] = terms_from(history.gathered);
  out["stuck"] = history.stuck;
  return out;
}

}  // namespace

void bind_parameter_server_simulation(py::module_& m) {
  Definitions(m).function<&run_server>("simulate_server", "**arguments");
}

}  // namespace pyc
