// Asynchronous averaging in pairs (AD-PSGD).
#include "services/neighbor_averaging/pairwise_averaging.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"

namespace pyc {
namespace {

/// From keyword arguments: there are too many to tell them apart by position.
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

class BoundPairwiseAveraging {
 public:
  /// Making memory that ranks share is collective and takes at most `timeout` seconds.
  BoundPairwiseAveraging(std::shared_ptr<Engine> engine, const Nodes& nodes, Seconds timeout, PairwiseOptions options,
                         const py::buffer& initial) {
    const py::buffer_info memory = initial.request();
    const GilReleased released;
    collective_ =
        PairwiseAveraging::create(std::move(engine), host_memory(), std::move(options),
                                  static_cast<const std::byte*>(memory.ptr), nodes, timeout, run_signal_handlers);
  }

  void read(const py::buffer& out) {
    const py::buffer_info memory = checked(out, true, collective_->options().type);
    const GilReleased released;
    collective_->read(static_cast<std::byte*>(memory.ptr), run_signal_handlers);
  }
  void read_kept(const py::buffer& out) {
    const py::buffer_info memory = checked(out, true, collective_->held_type());
    const GilReleased released;
    collective_->read_kept(static_cast<std::byte*>(memory.ptr), run_signal_handlers);
  }
  void apply(const py::buffer& delta) {
    const py::buffer_info memory = checked(delta, false, collective_->options().type);
    const GilReleased released;
    collective_->apply(static_cast<const std::byte*>(memory.ptr), run_signal_handlers);
  }
  void replace_held(const py::buffer& before, const py::buffer& values) {
    const py::buffer_info old = checked(before, false, collective_->held_type());
    const py::buffer_info memory = checked(values, false, collective_->held_type());
    const GilReleased released;
    collective_->replace_held(static_cast<const std::byte*>(old.ptr), static_cast<const std::byte*>(memory.ptr),
                              run_signal_handlers);
  }
  void pause(const py::object& timeout) {
    const Seconds limit = timeout_from(timeout);
    const GilReleased released;
    collective_->pause(limit, run_signal_handlers);
  }

  py::dict statistics() {
    PairwiseStatistics all;
    {
      const GilReleased released;
      all = collective_->statistics();
    }
    py::dict out;
    out["begun"] = all.begun;
    out["begun_between_nodes"] = all.begun_between_nodes;
    out["averages"] = all.averages;
    out["declined"] = all.declined;
    out["skipped"] = all.skipped;
    out["applied"] = all.applied;
    out["staleness_sum"] = all.staleness_sum;
    out["staleness_max"] = all.staleness_max;
    out["waited"] = all.waited;
    return out;
  }

  PairwiseAveraging& operator*() { return *collective_; }

 private:
  py::buffer_info checked(const py::buffer& buffer, bool writable, DataType type) const {
    py::buffer_info memory = buffer.request(writable);
    const std::size_t expected = collective_->options().count * size_of(type);
    const auto got = static_cast<std::size_t>(memory.size * memory.itemsize);
    if (got != expected) {
      throw std::invalid_argument(collective_->options().name + ": expected " + std::to_string(expected) +
                                  " bytes, got " + std::to_string(got));
    }
    return memory;
  }

  std::shared_ptr<PairwiseAveraging> collective_;
};

}  // namespace

void bind_pairwise_averaging(py::module_& m) {
  using Bound = BoundPairwiseAveraging;
  py::class_<Bound>(m, "PairwiseAveraging", py::is_final())
      .def(py::init([](std::shared_ptr<Engine> engine, std::vector<Rank> nodes, const py::object& timeout,
                       const py::buffer& initial, const py::kwargs& options) {
             return std::make_unique<Bound>(std::move(engine), Nodes(std::move(nodes)), timeout_from(timeout),
                                            pairwise_options(options), initial);
           }),
           py::arg("engine"), py::kw_only(), py::arg("nodes"), py::arg("timeout") = py::none(), py::arg("initial"))
      .def_static(
          "check",
          [](Engine& engine, const py::kwargs& arguments) {
            const PairwiseOptions options = pairwise_options(arguments);
            const GilReleased released;
            PairwiseAveraging::check(engine, options);
          },
          py::arg("engine"))
      .def("read", &Bound::read, py::arg("out"))
      .def("read_kept", &Bound::read_kept, py::arg("out"))
      .def("apply", &Bound::apply, py::arg("delta"))
      .def("replace_held", &Bound::replace_held, py::arg("before"), py::arg("values"))
      .def("pause", &Bound::pause, py::kw_only(), py::arg("timeout") = py::none())
      .def(
          "resume", [](Bound& b) { (*b).resume(); }, py::call_guard<GilReleased>())
      .def(
          "set_told", [](Bound& b, const std::vector<Rank>& dead) { (*b).set_told(dead); }, py::arg("dead"))
      .def(
          "close", [](Bound& b) { (*b).close(); }, py::call_guard<GilReleased>())
      .def("statistics", &Bound::statistics)
      .def_property_readonly("held_dtype_name", [](Bound& b) { return std::string(name_of((*b).held_type())); })
      .def_property_readonly("closed", [](Bound& b) { return (*b).closed(); });
}

}  // namespace pyc
