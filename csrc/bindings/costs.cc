// The costs of algorithms: by their own formula, and by their plans in virtual time.
#include "algorithms/activation.h"
#include "algorithms/registry.h"
#include "bindings/bindings.h"
#include "engine/measure_messages.h"
#include "simulation/plan_time.h"

namespace pyc {
namespace {

MessageCosts costs_from(double latency, double overhead, double gap_per_byte, double reduce_per_byte,
                        double header_bytes) {
  return {latency, overhead, gap_per_byte, reduce_per_byte, header_bytes};
}

}  // namespace

void bind_costs(py::module_& m) {
  m.def(
      "costs_of_allreduce",
      [](Rank size, std::size_t count, std::size_t element_bytes, double latency, double overhead, double gap_per_byte,
         double reduce_per_byte, double header_bytes) {
        const MessageCosts costs = costs_from(latency, overhead, gap_per_byte, reduce_per_byte, header_bytes);
        py::dict all;
        for (const AllreduceAlgorithm& algorithm : allreduce_candidates(size)) {
          all[py::str(algorithm.name)] = cost_of(algorithm.course(size, count), costs, element_bytes);
        }
        return all;
      },
      py::arg("size"), py::arg("count"), py::arg("element_bytes"), py::kw_only(), py::arg("latency"),
      py::arg("overhead"), py::arg("gap_per_byte"), py::arg("reduce_per_byte"), py::arg("header_bytes"));
  m.def(
      "costs_of_activation",
      [](Rank size, double latency, double overhead, double gap_per_byte, double header_bytes) {
        const MessageCosts costs = costs_from(latency, overhead, gap_per_byte, 0, header_bytes);
        py::dict all;
        for (const std::string& how : activation_candidates()) {
          all[py::str(how)] = cost_of(course_of_activation(how, size), costs, 0);
        }
        return all;
      },
      py::arg("size"), py::kw_only(), py::arg("latency"), py::arg("overhead"), py::arg("gap_per_byte"),
      py::arg("header_bytes"));
  m.def(
      "measure_messages",
      [](Engine& engine, Rank other, const py::object& timeout) {
        const Seconds limit = timeout_from(timeout);
        MessageCosts costs;
        {
          const GilReleased released;
          costs = measure_messages(engine, other, limit, run_signal_handlers);
        }
        return py::make_tuple(costs.latency, costs.overhead, costs.gap_per_byte);
      },
      py::arg("engine"), py::kw_only(), py::arg("other"), py::arg("timeout") = py::none());
  m.def(
      "parts_of_allreduce",
      [](const std::string& algorithm, Rank size) {
        const AllreduceAlgorithm found = find_allreduce(algorithm);
        return found.parts ? found.parts(size) : static_cast<std::size_t>(size);
      },
      py::arg("algorithm"), py::arg("size"));
  m.def(
      "time_of_plans",
      [](const std::string& algorithm, Rank size, std::size_t count, double element_bytes,
         const std::string& activation, double latency, double overhead, double gap_per_byte, double reduce_per_byte,
         bool one_for_all) {
        const GilReleased released;
        return time_of_plans({.algorithm = algorithm,
                              .activation = activation,
                              .size = size,
                              .count = count,
                              .element_bytes = element_bytes,
                              .network = {latency, overhead, gap_per_byte, 0},
                              .reduce_per_byte = reduce_per_byte,
                              .one_for_all = one_for_all});
      },
      py::arg("algorithm"), py::arg("size"), py::kw_only(), py::arg("count"), py::arg("element_bytes"),
      py::arg("activation") = "", py::arg("latency"), py::arg("overhead"), py::arg("gap_per_byte"),
      py::arg("reduce_per_byte"), py::arg("one_for_all") = false);
}

}  // namespace pyc
