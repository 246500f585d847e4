#include "bindings/bound_pairwise.h"

#include <stdexcept>
#include <utility>

namespace pyc {

PairwiseOptions pairwise_options(const py::dict& arguments) {
  PairwiseOptions options;
  options.name = arguments["name"].cast<std::string>();
  options.count = arguments["count"].cast<std::size_t>();
  options.type = data_type(arguments["dtype_name"].cast<std::string>());
  options.segment_bytes = arguments["segment_bytes"].cast<std::size_t>();
  options.neighbors = arguments["neighbors"].cast<std::vector<Rank>>();
  options.initiates = arguments["initiates"].cast<bool>();
  options.random = arguments["random"].cast<bool>();
  options.seed = arguments["seed"].cast<std::uint64_t>();
  options.per_step = arguments["per_step"].cast<bool>();
  options.period = arguments["period"].cast<Seconds>();
  if (const py::object acceleration = arguments["acceleration"]; !acceleration.is_none()) {
    const auto [kept, alpha] = acceleration.cast<std::pair<double, double>>();
    options.acceleration = Acceleration{kept, alpha};
  }
  options.by_frequency = arguments["by_frequency"].cast<bool>();
  return options;
}

void BoundPairwise::read_kept(const py::buffer& out) {
  const py::buffer_info memory = checked(out, true, (**this).held_type());
  without_gil([&] { (**this).read_kept(static_cast<std::byte*>(memory.ptr), run_signal_handlers); });
}

void BoundPairwise::replace_held(const py::buffer& before, const py::buffer& values) {
  const py::buffer_info old = checked(before, false, (**this).held_type());
  const py::buffer_info memory = checked(values, false, (**this).held_type());
  without_gil([&] {
    (**this).replace_held(static_cast<const std::byte*>(old.ptr), static_cast<const std::byte*>(memory.ptr),
                          run_signal_handlers);
  });
}

py::dict BoundPairwise::statistics() {
  const PairwiseStatistics all = without_gil([this] { return (**this).statistics(); });
  py::dict out;
  out["begun"] = all.begun;
  out["begun_between_nodes"] = all.begun_between_nodes;
  out["averages"] = all.averages;
  out["declined"] = all.declined;
  out["skipped"] = all.skipped;
  out["applied"] = all.applied;
  out["staleness_sum"] = all.staleness_sum;
  out["staleness_max"] = all.staleness_max;
  out["waited"] = all.waited + (**this).waited();
  out["memory_bytes"] = (**this).memory_bytes();
  return out;
}

py::buffer_info BoundPairwise::checked(const py::buffer& buffer, bool writable, DataType type) const {
  py::buffer_info memory = buffer.request(writable);
  const std::size_t expected = (**this).options().count * size_of(type);
  const auto got = static_cast<std::size_t>(memory.size * memory.itemsize);
  if (got != expected) {
    throw std::invalid_argument((**this).options().name + ": expected " + std::to_string(expected) + " bytes, got " +
                                std::to_string(got));
  }
  return memory;
}

}  // namespace pyc
