// The simulator, from scripts to columns.
#include <algorithm>

#include "bindings/bindings.h"
#include "bindings/calls.h"
#include "simulation/simulation.h"

namespace pyc {
namespace {

using Ending = SimulationOptions::Ending;

Ending ending_from(const std::string& name) {
  if (name == "flush") return Ending::kFlush;
  if (name == "close") return Ending::kClose;
  if (name == "none") return Ending::kNone;
  throw std::invalid_argument("ending: expected 'flush', 'close' or 'none', got '" + name + "'");
}

std::vector<Ending> endings_from(const py::object& ending, std::size_t size) {
  if (py::isinstance<py::str>(ending)) return std::vector<Ending>(size, ending_from(ending.cast<std::string>()));
  std::vector<Ending> all;
  for (const py::handle item : ending) all.push_back(ending_from(item.cast<std::string>()));
  return all;
}

template <class Value, class Get>
py::array_t<Value> column(const std::vector<SimulatedCall>& calls, Get get) {
  py::array_t<Value> values(static_cast<py::ssize_t>(calls.size()));
  Value* const data = values.mutable_data();
  for (std::size_t i = 0; i < calls.size(); ++i) data[i] = static_cast<Value>(get(calls[i]));
  return values;
}

py::dict columns(const SimulationResult& result, Rank size, bool recorded) {
  py::dict out;
  const auto& calls = result.calls;
  out["rank"] = column<std::int64_t>(calls, [](const auto& c) { return c.rank; });
  out["call"] = column<std::int64_t>(calls, [](const auto& c) { return c.call; });
  out["called"] = column<double>(calls, [](const auto& c) { return c.called; });
  out["done"] = column<double>(calls, [](const auto& c) { return c.done; });
  out["late"] = column<bool>(calls, [](const auto& c) { return c.late; });
  out["round"] = column<std::int64_t>(calls, [](const auto& c) { return c.info.round; });
  out["initiator"] = column<std::int64_t>(calls, [](const auto& c) { return c.info.initiator; });
  out["included"] = column<bool>(calls, [](const auto& c) { return c.info.included; });
  out["active"] = column<std::int64_t>(calls, [](const auto& c) { return c.info.active; });
  out["contributors"] = column<std::int64_t>(calls, [](const auto& c) { return c.info.contributor_count; });
  out["staleness"] = column<std::int64_t>(calls, [](const auto& c) { return c.info.staleness; });
  out["missed"] = column<std::int64_t>(calls, [](const auto& c) { return c.info.missed; });
  out["overrun"] = column<bool>(calls, [](const auto& c) { return c.info.overrun; });
  if (recorded) {
    const auto rows = static_cast<py::ssize_t>(calls.size());
    py::array_t<std::int64_t> values({rows, static_cast<py::ssize_t>(result.count)});
    std::copy(result.results.begin(), result.results.end(), values.mutable_data());
    py::array_t<bool> members({rows, static_cast<py::ssize_t>(size)});
    std::fill_n(members.mutable_data(), members.size(), false);
    for (py::ssize_t i = 0; i < rows; ++i) {
      for (const Rank r : calls[static_cast<std::size_t>(i)].info.contributor_list()) members.mutable_at(i, r) = true;
    }
    out["result"] = values;
    out["members"] = members;
  }
  out["rounds"] = result.rounds;
  out["virtual_seconds"] = result.seconds;
  out["messages"] = result.messages;
  out["bytes"] = result.bytes;
  out["deadlock"] = result.deadlock.empty() ? py::object(py::none()) : py::object(py::str(result.deadlock));
  return out;
}

using Work = py::array_t<double, py::array::c_style | py::array::forcecast>;
using Calls = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;

py::dict run(Rank size, Rank ranks_per_node, const Work& work, const Calls& calls, const py::object& ending,
             std::size_t count, std::size_t pipeline, bool barrier, double latency, double overhead,
             double gap_per_byte, double reduce_per_byte, double jitter, std::uint64_t delivery_seed,
             std::optional<double> payload_bytes, bool record, std::uint64_t max_events, const py::kwargs& policy) {
  if (work.ndim() != 2) throw std::invalid_argument("work: expected two dimensions, ranks by calls");
  SimulationOptions options;
  options.size = size;
  options.ranks_per_node = ranks_per_node;
  options.max_calls = static_cast<std::size_t>(work.shape(1));
  options.work.assign(work.data(), work.data() + work.size());
  for (py::ssize_t i = 0; i < calls.size(); ++i) {
    const std::int64_t n = calls.data()[i];
    if (n < 0 || n > work.shape(1)) throw std::invalid_argument("calls: expected 0 to the columns of work");
    options.calls.push_back(static_cast<std::size_t>(n));
  }
  options.ending = endings_from(ending, static_cast<std::size_t>(size));
  options.pipeline = pipeline;
  options.barrier = barrier;
  options.collective = options_from(policy);
  options.collective.name = "simulated";
  options.collective.count = count;
  options.collective.track_members = record;
  options.network = {latency, overhead, gap_per_byte, jitter};
  options.reduce_per_byte = reduce_per_byte;
  options.delivery_seed = delivery_seed;
  const auto elements = static_cast<double>(count == 0 ? static_cast<std::size_t>(size) : count);
  if (payload_bytes) options.payload_factor = *payload_bytes / (elements * 8);
  options.record_results = record;
  options.max_events = max_events;
  const SimulationResult result = without_gil([&] { return simulate(options); });
  return columns(result, size, record);
}

}  // namespace

void bind_simulation(py::module_& m) {
  Definitions(m).function<&run>(
      "simulate",
      "*, size, ranks_per_node=1, work, calls, ending='flush', count=0, pipeline=0, barrier=False, latency=0.0, "
      "overhead=0.0, gap_per_byte=0.0, reduce_per_byte=0.0, jitter=0.0, delivery_seed=0, payload_bytes=None, "
      "record=True, max_events=0, **policy");
}

}  // namespace pyc
