#include "services/hop/hop.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/bound.h"
#include "bindings/calls.h"
#include "simulation/hop_simulation.h"

namespace pyc {
namespace {

using Graph = std::vector<std::vector<Rank>>;
using PythonSkip = std::optional<std::pair<Iteration, Iteration>>;

HopOptions hop_options(std::string name, std::size_t count, const std::string& dtype_name, Iteration max_ig,
                       std::vector<std::uint64_t> backup, std::optional<Iteration> staleness, bool acks,
                       const PythonSkip& skip, bool serial, bool checks, Graph in, Graph out) {
  HopOptions options{.name = std::move(name),
                     .count = count,
                     .type = data_type(dtype_name),
                     .max_ig = max_ig,
                     .backup = std::move(backup),
                     .staleness = staleness,
                     .acks = acks,
                     .skip = {},
                     .serial = serial,
                     .checks = checks,
                     .tokens = {},
                     .in = std::move(in),
                     .out = std::move(out)};
  if (skip) options.skip = HopSkip{skip->first, skip->second};
  return options;
}

py::dict statistics_from(const HopStatistics& statistics) {
  py::dict out;
  out["iterations"] = statistics.iterations;
  out["jumps"] = statistics.jumps;
  out["skipped"] = statistics.skipped;
  out["received"] = statistics.received;
  out["stale"] = statistics.stale;
  out["unsent"] = statistics.unsent;
  return out;
}

std::vector<std::pair<Rank, Iteration>> pairs_from(const std::vector<HopUpdate>& updates) {
  std::vector<std::pair<Rank, Iteration>> pairs;
  for (const HopUpdate& update : updates) pairs.emplace_back(update.sender, update.iteration);
  return pairs;
}

struct HopModel {
  py::buffer_info model;
};

class BoundHop : HopModel, public BoundCollective<Hop> {  // the engine writes to the model until the collective ends
 public:
  BoundHop(std::shared_ptr<Engine> engine, const py::buffer& values, const Nodes& nodes, Seconds timeout,
           HopOptions options)
      : HopModel{requested(values, true, options.name, options.count)}, BoundCollective([&] {
          return Hop::create(std::move(engine), host_memory(), std::move(options), static_cast<std::byte*>(model.ptr),
                             nodes, timeout, run_signal_handlers);
        }) {}

  Iteration enter(Iteration last, Timeout timeout) {
    return exclusively([&](Hop& hop) {
      hop.enter(last, timeout, run_signal_handlers);
      return hop.worker().iteration();
    });
  }

  void step(const py::buffer& delta, Timeout timeout) {
    const py::buffer_info memory = memory_of(delta, false);
    exclusively([&](Hop& hop) { hop.step(static_cast<const std::byte*>(memory.ptr), timeout, run_signal_handlers); });
  }

  std::vector<std::pair<Rank, Iteration>> received() {
    return exclusively([](Hop& hop) { return pairs_from(hop.worker().received()); });
  }

  py::dict statistics() {
    py::dict out = statistics_from(exclusively([](Hop& hop) { return hop.worker().statistics(); }));
    out.attr("update")(BoundCollective::statistics());
    return out;
  }
};

py::dict run_hop(const py::kwargs& arguments) {
  HopScript script;
  const auto get = [&](const char* name) -> py::object { return arguments[name]; };
  script.options =
      hop_options("simulated", get("count").cast<std::size_t>(), "float64", get("max_ig").cast<Iteration>(),
                  get("backup").cast<std::vector<std::uint64_t>>(), get("staleness").cast<std::optional<Iteration>>(),
                  get("acks").cast<bool>(), get("skip").cast<PythonSkip>(), get("serial").cast<bool>(), true,
                  get("in").cast<Graph>(), get("out").cast<Graph>());
  script.size = get("size").cast<Rank>();
  script.ranks_per_node = get("ranks_per_node").cast<Rank>();
  script.max_iterations = get("max_iterations").cast<std::size_t>();
  script.work = get("work").cast<std::vector<Seconds>>();
  script.iterations = get("iterations").cast<std::vector<Iteration>>();
  for (const auto& stop : get("stops").cast<std::vector<std::optional<Iteration>>>()) {
    script.stops.push_back(stop.value_or(kNeverIteration));
  }
  script.initial = get("initial").cast<std::vector<double>>();
  script.deltas = get("deltas").cast<std::vector<double>>();
  script.bounds = get("bounds").cast<std::vector<double>>();
  script.leaves = get("leaves").cast<bool>();
  script.network = {.latency = get("latency").cast<Seconds>(), .jitter = get("jitter").cast<Seconds>()};
  script.delivery_seed = get("delivery_seed").cast<std::uint64_t>();
  script.max_events = get("max_events").cast<std::uint64_t>();
  const HopHistory history = without_gil([&] { return simulate_hop(script); });
  constexpr const char* kNames[] = {"entered", "renewed", "stepped"};
  py::list entries;
  for (const HopHistory::Entry& e : history.entries) {
    entries.append(py::make_tuple(kNames[static_cast<std::size_t>(e.what)], e.rank, e.iteration, e.time, e.value,
                                  pairs_from(e.received)));
  }
  py::list ranks;
  for (const HopStatistics& rank : history.ranks) ranks.append(statistics_from(rank));
  py::dict out;
  out["entries"] = entries;
  out["iterations"] = history.iterations;
  out["ranks"] = ranks;
  out["stuck"] = history.stuck;
  out["open"] = history.open;
  out["violation"] = history.violation;
  return out;
}

}  // namespace

void bind_hop(py::module_& m) {
  using Bound = BoundHop;
  const py::class_<Bound> hop(m, "Hop", py::is_final());
  ClassDefinitions(hop)
      .constructor(
          "engine, *, model, dtype_name, count, max_ig, backup, staleness=None, acks=False, skip=None, serial=False, "
          "checks=False, in_neighbors, out_neighbors, nodes, timeout=None, name",
          [](std::shared_ptr<Engine> engine, const py::buffer& model, const std::string& dtype_name, std::size_t count,
             Iteration max_ig, std::vector<std::uint64_t> backup, std::optional<Iteration> staleness, bool acks,
             const PythonSkip& skip, bool serial, bool checks, Graph in_neighbors, Graph out_neighbors,
             std::vector<Rank> nodes, Timeout timeout, std::string name) {
            return std::make_unique<Bound>(
                std::move(engine), model, Nodes(std::move(nodes)), timeout,
                hop_options(std::move(name), count, dtype_name, max_ig, std::move(backup), staleness, acks, skip,
                            serial, checks, std::move(in_neighbors), std::move(out_neighbors)));
          })
      .method<&Bound::enter>("enter", "last, *, timeout=None")
      .method<&Bound::step>("step", "delta, *, timeout=None")
      .property("iteration", [](Bound& b) { return (*b).worker().iteration(); })
      .property<&Bound::received>("received")
      .property("queued", [](Bound& b) { return (*b).queued(); })
      .property("rings", [](Bound& b) { return (*b).notified(); })
      .method<&Bound::statistics>("statistics", "");
  define_protocol<Bound>(Definitions(hop));
  Definitions(m).function<&run_hop>("simulate_hop", "**arguments");
}

}  // namespace pyc
