// P-Reduce: in groups that the caller gives, and in groups of a generator.
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/bound_partial_reduce.h"
#include "groups/generator.h"
#include "services/partial_reduce/explicit_groups.h"
#include "services/partial_reduce/partial_reduce.h"

namespace pyc {
namespace {

class BoundExplicitGroups {
 public:
  BoundExplicitGroups(std::shared_ptr<Engine> engine, const Nodes& nodes) {
    const GilReleased released;
    groups_ = ExplicitGroups::join(std::move(engine), host_memory(), nodes);
  }

  void reduce(const py::buffer& values, const std::string& dtype, const std::vector<Rank>& members,
              const std::string& op, const std::string& algorithm, const py::object& timeout) {
    const OneThread one(in_use_, "preduce");
    const py::buffer_info memory = values.request(true);
    const GroupData data{static_cast<std::byte*>(memory.ptr), static_cast<std::size_t>(memory.size), data_type(dtype),
                         reduce_op(op)};
    const Seconds limit = timeout_from(timeout);
    run_on(values, data.values, *groups_,
           [&] { groups_->reduce(members, data, algorithm, limit, run_signal_handlers); });
  }

  ExplicitGroups& operator*() { return *groups_; }

 private:
  std::shared_ptr<ExplicitGroups> groups_;
  std::atomic_flag in_use_;
};

class BoundPartialReduce {
 public:
  /// Making memory that ranks share is collective and takes at most `timeout` seconds.
  BoundPartialReduce(std::shared_ptr<Engine> engine, const Nodes& nodes, Seconds timeout,
                     PartialReduceOptions options) {
    const GilReleased released;
    collective_ = PartialReduce::create(std::move(engine), host_memory(), std::move(options), nodes, timeout,
                                        run_signal_handlers);
  }

  py::tuple sync(const py::buffer& values, std::int64_t step, const std::vector<Rank>& group,
                 const py::object& timeout) {
    const OneThread one(in_use_, collective_->options().name);
    const py::buffer_info memory = values.request(true);
    if (static_cast<std::size_t>(memory.size) != collective_->options().count) {
      throw std::invalid_argument(collective_->options().name + ": expected " +
                                  std::to_string(collective_->options().count) + " elements, got " +
                                  std::to_string(memory.size));
    }
    const Seconds limit = timeout_from(timeout);
    auto* const data = static_cast<std::byte*>(memory.ptr);
    GroupInfo info;
    run_on(values, data, *collective_,
           [&] { info = collective_->sync(data, step, group, limit, run_signal_handlers); });
    return to_python(info);
  }

  void close(const std::optional<py::buffer>& values) {
    py::buffer_info memory;
    if (values) memory = values->request();
    const GilReleased released;
    collective_->close(static_cast<const std::byte*>(memory.ptr));
  }

  PartialReduce& operator*() { return *collective_; }

 private:
  std::shared_ptr<PartialReduce> collective_;
  std::atomic_flag in_use_;
};

}  // namespace

PartialReduceOptions options_from(std::size_t count, const std::string& dtype_name, const std::string& op,
                                  bool by_staleness, const GroupGenerator* generator, Rank coordinator_rank,
                                  std::vector<std::string> algorithms, std::string name) {
  PartialReduceOptions options{.name = std::move(name),
                               .count = count,
                               .type = data_type(dtype_name),
                               .op = reduce_op(op),
                               .by_staleness = by_staleness,
                               .generator = std::nullopt,
                               .server = coordinator_rank,
                               .algorithms = std::move(algorithms)};
  if (generator != nullptr) options.generator = generator->options();
  return options;
}

void bind_partial_reduce(py::module_& m) {
  using Explicit = BoundExplicitGroups;
  py::class_<Explicit>(m, "ExplicitGroups", py::is_final())
      .def(py::init([](std::shared_ptr<Engine> engine, std::vector<Rank> nodes) {
             return std::make_unique<Explicit>(std::move(engine), Nodes(std::move(nodes)));
           }),
           py::arg("engine"), py::kw_only(), py::arg("nodes"))
      .def("reduce", &Explicit::reduce, py::arg("values"), py::kw_only(), py::arg("dtype_name"), py::arg("members"),
           py::arg("op"), py::arg("algorithm"), py::arg("timeout") = py::none())
      .def(
          "close", [](Explicit& e) { (*e).close(); }, py::call_guard<GilReleased>())
      .def_property_readonly("cache_hits", [](Explicit& e) { return (*e).cache_hits(); })
      .def_property_readonly("cache_misses", [](Explicit& e) { return (*e).cache_misses(); });

  using Bound = BoundPartialReduce;
  py::class_<Bound>(m, "PartialReduce", py::is_final())
      .def(py::init([](std::shared_ptr<Engine> engine, std::size_t count, const std::string& dtype_name,
                       const std::string& op, bool by_staleness, const GroupGenerator* generator, Rank coordinator_rank,
                       std::vector<std::string> algorithms, std::vector<Rank> nodes, const py::object& timeout,
                       std::string name) {
             return std::make_unique<Bound>(std::move(engine), Nodes(std::move(nodes)), timeout_from(timeout),
                                            options_from(count, dtype_name, op, by_staleness, generator,
                                                         coordinator_rank, std::move(algorithms), std::move(name)));
           }),
           py::arg("engine"), py::kw_only(), py::arg("count"), py::arg("dtype_name"), py::arg("op"),
           py::arg("by_staleness") = false, py::arg("generator") = py::none(), py::arg("coordinator_rank") = 0,
           py::arg("algorithms"), py::arg("nodes"), py::arg("timeout") = py::none(), py::arg("name"))
      .def_static(
          "check",
          [](Engine& engine, std::size_t count, const std::string& dtype_name, const std::string& op, bool by_staleness,
             std::vector<std::string> algorithms) {
            const PartialReduceOptions options =
                options_from(count, dtype_name, op, by_staleness, nullptr, 0, std::move(algorithms), {});
            const GilReleased released;
            PartialReduce::check(engine, host_memory(), options);
          },
          py::arg("engine"), py::kw_only(), py::arg("count"), py::arg("dtype_name"), py::arg("op"),
          py::arg("by_staleness") = false, py::arg("algorithms"))
      .def("sync", &Bound::sync, py::arg("values"), py::kw_only(), py::arg("step"),
           py::arg("group") = std::vector<Rank>{}, py::arg("timeout") = py::none())
      .def("close", &Bound::close, py::arg("values") = py::none())
      .def_property_readonly("closed", [](Bound& b) { return (*b).closed(); })
      .def_property_readonly("cache_hits", [](Bound& b) { return (*b).cache_hits(); })
      .def_property_readonly("cache_misses", [](Bound& b) { return (*b).cache_misses(); });
}

}  // namespace pyc
