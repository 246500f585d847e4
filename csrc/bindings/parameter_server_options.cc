#include "bindings/parameter_server_options.h"

#include <map>
#include <string>

namespace pyc {
namespace {

const std::map<std::string, server::Sync> kSyncNames = {
    {"bsp", server::Sync::kBsp},
    {"asp", server::Sync::kAsp},
    {"ssp", server::Sync::kSsp},
    {"dssp", server::Sync::kDssp},
    {"elastic-bsp", server::Sync::kElasticBsp},
    {"eamsgd", server::Sync::kEamsgd},
    {"ringmaster", server::Sync::kRingmaster},
    {"rennala", server::Sync::kRennala},
    {"ringleader", server::Sync::kRingleader},
    {"rescaled", server::Sync::kRescaled},
    {"mindflayer", server::Sync::kMindFlayer},
};

const std::map<std::string, server::Solver> kSolverNames = {
    {"linear", server::Solver::kLinear},          {"zipline", server::Solver::kZipline},
    {"zipline_opt", server::Solver::kZiplineOpt}, {"zipline_opt_bs", server::Solver::kZiplineOptBs},
    {"grid_scan", server::Solver::kGridScan},     {"full_grid_scan", server::Solver::kFullGridScan},
};

const std::map<std::string, server::Rule> kRuleNames = {
    {"sgd", server::Rule::kSgd},
    {"adam", server::Rule::kAdam},
    {"elastic", server::Rule::kElastic},
    {"function", server::Rule::kFunction},
};

template <class Value>
void take(const py::dict& arguments, const char* name, Value& value) {
  if (arguments.contains(name)) value = arguments[name].cast<Value>();
}

}  // namespace

server::SyncOptions sync_options_from(const py::dict& arguments) {
  server::SyncOptions options;
  options.kind = named(kSyncNames, arguments["kind"].cast<std::string>(), "kind");
  if (arguments.contains("solver"))
    options.solver = named(kSolverNames, arguments["solver"].cast<std::string>(), "solver");
  take(arguments, "low", options.low);
  take(arguments, "high", options.high);
  take(arguments, "lookahead", options.lookahead);
  take(arguments, "predicts_each_push", options.predicts_each_push);
  take(arguments, "weigh_length", options.weigh_length);
  take(arguments, "patience", options.patience);
  take(arguments, "limit", options.limit);
  take(arguments, "trials", options.trials);
  take(arguments, "allotted", options.allotted);
  return options;
}

server::UpdateOptions update_options_from(const py::dict& arguments) {
  server::UpdateOptions options;
  options.rule = named(kRuleNames, arguments["rule"].cast<std::string>(), "rule");
  take(arguments, "rate", options.rate);
  take(arguments, "momentum", options.momentum);
  take(arguments, "beta1", options.beta1);
  take(arguments, "beta2", options.beta2);
  take(arguments, "epsilon", options.epsilon);
  take(arguments, "alpha", options.alpha);
  return options;
}

}  // namespace pyc
