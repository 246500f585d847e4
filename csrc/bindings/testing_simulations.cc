// In _testing: simulations of scripted ranks that no command of the package uses.
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/testing.h"
#include "testing/bootstrap_simulation.h"
#include "testing/pairwise_simulation.h"

namespace pyc {
namespace {

py::dict run_bootstrap(Rank size, const std::vector<std::vector<py::bytes>>& texts, Rank ranks_per_node, double pause,
                       double patience, double answer_time, bool driven_in_calls, bool closes, std::size_t strays,
                       double latency, double jitter, std::uint64_t seed) {
  BootstrapScript script{.size = size,
                         .ranks_per_node = ranks_per_node,
                         .texts = {},
                         .pause = pause,
                         .patience = patience,
                         .answer_time = answer_time,
                         .driven_in_calls = driven_in_calls,
                         .closes = closes,
                         .strays = strays,
                         .network = {.latency = latency, .jitter = jitter},
                         .seed = seed};
  for (const auto& comparison : texts) script.texts.emplace_back(comparison.begin(), comparison.end());
  const BootstrapOutcome outcome = simulate_bootstrap(script);
  py::list comparisons;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    py::list by_rank;
    for (const auto& rank : outcome.ranks) {
      if (i >= rank.comparisons.size()) {
        by_rank.append(py::str("has not ended"));
      } else if (const Engine::Texts& said = rank.comparisons[i]; said) {
        py::list all;
        for (const std::string& text : *said) all.append(py::bytes(text));
        by_rank.append(all);
      } else {
        by_rank.append(py::none());
      }
    }
    comparisons.append(by_rank);
  }
  const auto counts = [&](auto member) {
    std::vector<std::uint64_t> all;
    for (const auto& rank : outcome.ranks) all.push_back(rank.*member);
    return all;
  };
  using PerRank = BootstrapOutcome::PerRank;
  py::dict out;
  out["comparisons"] = comparisons;
  out["premature"] = outcome.premature;
  out["sent"] = counts(&PerRank::sent);
  out["received"] = counts(&PerRank::received);
  out["sent_to_close"] = counts(&PerRank::sent_to_close);
  out["received_to_close"] = counts(&PerRank::received_to_close);
  out["withdrew"] = counts(&PerRank::withdrew);
  out["closed"] = counts(&PerRank::closed);
  return out;
}

py::dict run_pairwise(const py::kwargs& arguments) {
  PairwiseScript script;
  script.size = arguments["size"].cast<Rank>();
  script.ranks_per_node = arguments["ranks_per_node"].cast<Rank>();
  script.neighbors = arguments["neighbors"].cast<std::vector<std::vector<Rank>>>();
  script.initiates = arguments["initiates"].cast<std::vector<bool>>();
  script.steps = arguments["steps"].cast<std::vector<std::size_t>>();
  script.step_time = arguments["step_time"].cast<std::vector<Seconds>>();
  script.leaves = arguments["leaves"].cast<std::vector<bool>>();
  script.count = arguments["count"].cast<std::size_t>();
  script.segment_bytes = arguments["segment_bytes"].cast<std::size_t>();
  script.random = arguments["random"].cast<bool>();
  script.per_step = arguments["per_step"].cast<bool>();
  script.period = arguments["period"].cast<Seconds>();
  script.initial = arguments["initial"].cast<std::vector<double>>();
  script.applies_zero = arguments["applies_zero"].cast<bool>();
  script.seed = arguments["seed"].cast<std::uint64_t>();
  script.drain = arguments["drain"].cast<Seconds>();
  script.network = {.latency = arguments["latency"].cast<Seconds>(), .jitter = arguments["jitter"].cast<Seconds>()};
  script.delivery_seed = arguments["delivery_seed"].cast<std::uint64_t>();
  script.max_events = arguments["max_events"].cast<std::uint64_t>();
  if (const py::object acceleration = arguments["acceleration"]; !acceleration.is_none()) {
    const auto [kept, alpha] = acceleration.cast<std::pair<double, double>>();
    script.acceleration = Acceleration{kept, alpha};
  }
  const PairwiseHistory history = without_gil([&] { return simulate_pairwise(script); });
  const auto counts = [&](auto member) {
    std::vector<std::uint64_t> all;
    for (const PairwiseStatistics& rank : history.ranks) all.push_back(rank.*member);
    return all;
  };
  py::dict out;
  out["models"] = py::array_t<double>(static_cast<py::ssize_t>(history.models.size()), history.models.data());
  out["begun"] = counts(&PairwiseStatistics::begun);
  out["averages"] = counts(&PairwiseStatistics::averages);
  out["declined"] = counts(&PairwiseStatistics::declined);
  out["skipped"] = counts(&PairwiseStatistics::skipped);
  out["seconds"] = history.seconds;
  out["stuck"] = history.stuck;
  return out;
}

}  // namespace

void bind_testing_simulations(py::module_& t) {
  t.def("simulate_pairwise", &run_pairwise);
  t.def("simulate_bootstrap", &run_bootstrap, py::kw_only(), py::arg("size"), py::arg("texts"),
        py::arg("ranks_per_node") = 1, py::arg("pause") = 1.0, py::arg("patience") = 0.0, py::arg("answer_time") = 0.0,
        py::arg("driven_in_calls") = false, py::arg("closes") = true, py::arg("strays") = 0, py::arg("latency") = 0.0,
        py::arg("jitter") = 0.0, py::arg("seed") = 0);
}

}  // namespace pyc
