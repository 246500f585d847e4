// The costs of algorithms: by their own formula, and by their plans in virtual time.
#include "algorithms/activation.h"
#include "algorithms/registry.h"
#include "bindings/bindings.h"
#include "bindings/calls.h"
#include "engine/measure_messages.h"
#include "simulation/plan_time.h"

namespace pyc {
void bind_costs(py::module_& m) {
  Definitions(m)
      .function("costs_of_allreduce",
                "size, count, element_bytes, *, latency, overhead, gap_per_byte, reduce_per_byte, header_bytes",
                [](Rank size, std::size_t count, std::size_t element_bytes, double latency, double overhead,
                   double gap_per_byte, double reduce_per_byte, double header_bytes) {
                  const MessageCosts costs{latency, overhead, gap_per_byte, reduce_per_byte, header_bytes};
                  py::dict all;
                  for (const AllreduceAlgorithm& algorithm : allreduce_candidates(size)) {
                    all[py::str(algorithm.name)] = cost_of(algorithm.course(size, count), costs, element_bytes);
                  }
                  return all;
                })
      .function("costs_of_activation", "size, *, latency, overhead, gap_per_byte, header_bytes",
                [](Rank size, double latency, double overhead, double gap_per_byte, double header_bytes) {
                  const MessageCosts costs{latency, overhead, gap_per_byte, 0, header_bytes};
                  py::dict all;
                  for (const std::string& how : activation_candidates()) {
                    all[py::str(how)] = cost_of(course_of_activation(how, size), costs, 0);
                  }
                  return all;
                })
      .function("measure_messages", "engine, *, other, timeout=None",
                [](Engine& engine, Rank other, Timeout timeout) {
                  const MessageCosts costs =
                      without_gil([&] { return measure_messages(engine, other, timeout, run_signal_handlers); });
                  return py::make_tuple(costs.latency, costs.overhead, costs.gap_per_byte);
                })
      .function("parts_of_allreduce", "algorithm, size",
                [](const std::string& algorithm, Rank size) {
                  const AllreduceAlgorithm found = find_allreduce(algorithm);
                  return found.parts ? found.parts(size) : static_cast<std::size_t>(size);
                })
      .function("time_of_plans",
                "algorithm, size, *, count, element_bytes, activation='', latency, overhead, gap_per_byte, "
                "reduce_per_byte, one_for_all=False",
                [](const std::string& algorithm, Rank size, std::size_t count, double element_bytes,
                   const std::string& activation, double latency, double overhead, double gap_per_byte,
                   double reduce_per_byte, bool one_for_all) {
                  const GilReleased released;
                  return time_of_plans({.algorithm = algorithm,
                                        .activation = activation,
                                        .size = size,
                                        .count = count,
                                        .element_bytes = element_bytes,
                                        .network = {latency, overhead, gap_per_byte, 0},
                                        .reduce_per_byte = reduce_per_byte,
                                        .one_for_all = one_for_all});
                });
}

}  // namespace pyc
