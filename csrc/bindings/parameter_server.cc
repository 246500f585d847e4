#include "services/parameter_server/parameter_server.h"

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/c_functions.h"
#include "bindings/calls.h"
#include "bindings/kept_object.h"
#include "bindings/one_thread.h"
#include "bindings/parameter_server_options.h"
#include "bindings/protocol.h"
#include "c_api/handles.h"
#include "services/parameter_server/finite.h"
#include "services/parameter_server/ledger_copy.h"
#include "services/parameter_server/update_rule.h"

namespace pyc {
namespace {

using server::Clock;
using server::ParameterServer;

const std::map<std::string, server::Rule>& rules() {
  static const std::map<std::string, server::Rule> rules = {
      {"sgd", server::Rule::kSgd},
      {"adam", server::Rule::kAdam},
      {"elastic", server::Rule::kElastic},
      {"function", server::Rule::kFunction},
  };
  return rules;
}

server::UpdateOptions update_options_from(const py::dict& arguments) {
  server::UpdateOptions options;
  const auto get = [&](const char* name, double& value) {
    if (arguments.contains(name)) value = arguments[name].cast<double>();
  };
  const auto rule = arguments["rule"].cast<std::string>();
  options.rule = rules().at(rule);
  get("rate", options.rate);
  get("momentum", options.momentum);
  get("beta1", options.beta1);
  get("beta2", options.beta2);
  get("epsilon", options.epsilon);
  get("alpha", options.alpha);
  return options;
}

/// Wraps Python's `update(weights, gradient)`. Its arrays have the accumulator type and the weights that `rank` serves.
server::Update update_from(const py::object& update, const server::Options& options, Rank rank) {
  if (update.is_none()) return {};
  const server::Layout layout(options);
  const auto count = static_cast<py::ssize_t>(layout.count(layout.shard_of(rank).value_or(0)));
  const char* const format = elements_of(options.type, ReduceOp::kSum).accumulator == DataType::kFloat64 ? "f8" : "f4";
  return [function = kept(update), format, count](std::byte* weights, const std::byte* gradient) {
    const GilHeld lock;
    const auto array_of = [&](const std::byte* data) {
      return py::array(py::dtype(format), std::vector{count}, std::vector<py::ssize_t>{}, data, py::none());
    };
    (*function)(array_of(weights), array_of(gradient));
  };
}

using server::NotFinite;

NotFinite not_finite(const std::string& name) {
  return name == "accept" ? NotFinite::kAccept : name == "skip" ? NotFinite::kSkip : NotFinite::kReject;
}

py::dict statistics_from(const server::Options& options, const std::vector<std::byte>& memory) {
  server::LedgerCopy ledger(options, memory);
  py::dict out;
  py::list workers;
  for (server::Worker w = 0; w < options.workers.size(); ++w) {
    const server::Account& account = ledger->account(w);
    workers.append(py::make_tuple(options.workers[w], account.pushes, account.discarded, account.given_up,
                                  account.waiting, static_cast<int>(ledger->row(w).presence)));
  }
  py::list ages;
  for (const std::uint64_t pushes : ledger->counts().ages) ages.append(pushes);
  py::list supersteps;
  const std::uint64_t last = ledger->superstep();
  for (std::uint64_t k = last > server::kSupersteps ? last - server::kSupersteps : 0; k < last; ++k) {
    const server::Superstep& superstep = ledger->counts().supersteps[k % server::kSupersteps];
    supersteps.append(py::make_tuple(superstep.length, superstep.slack));
  }
  out["workers"] = workers;
  out["staleness"] = ages;
  out["supersteps"] = supersteps;
  out["version"] = ledger->version();
  out["superstep"] = last;
  return out;
}

std::optional<server::Resumed> resumed_from(const py::object& arguments) {
  if (arguments.is_none()) return std::nullopt;
  server::Resumed resumed{.version = arguments["version"].cast<server::Version>(),
                          .given = arguments["given"].cast<server::Version>(),
                          .clocks = arguments["clocks"].cast<std::vector<Clock>>(),
                          .parts = {}};
  for (const py::handle& each : arguments["parts"]) {
    auto [first, end, included] = each.cast<std::tuple<std::size_t, std::size_t, std::vector<Clock>>>();
    resumed.parts.push_back({first, end, std::move(included)});
  }
  return resumed;
}

class BoundParameterServer {
 public:
  BoundParameterServer(std::shared_ptr<Engine> engine, const py::buffer& weights, const Nodes& nodes, Seconds timeout,
                       server::Options options, const py::object& update, const std::string& nan)
      : engine_(engine.get()), nan_(not_finite(nan)) {
    const server::Layout layout(options);
    const std::size_t arrays = 1 + server::UpdateRule(options.update, layout.elements().accumulator).states();
    const std::size_t count = options.resumed ? arrays * options.count * layout.wide_bytes() : options.count;
    const py::buffer_info memory = requested(weights, false, options.name, count);
    server::Update call = update_from(update, options, engine->rank());
    const GilReleased released;
    server_ = ParameterServer::create(std::move(engine), host_memory(), std::move(options),
                                      static_cast<const std::byte*>(memory.ptr), std::move(call), nodes,
                                      {timeout, run_signal_handlers_});
  }

  Clock push(const py::buffer& gradient, const py::object& timeout) {
    const OneThread one(in_use_, server_->name());
    const py::buffer_info memory = requested(gradient, false, server_->name(), server_->options().count);
    const Seconds limit = timeout_from(timeout);
    const GilReleased released;
    const std::byte* const values = checked(memory.ptr);
    server_->push(kind_of(values), values, {limit, run_signal_handlers_});
    suspended_ = false;
    return server_->clock();
  }

  Clock give_up(const py::object& timeout) {
    const OneThread one(in_use_, server_->name());
    const Seconds limit = timeout_from(timeout);
    const GilReleased released;
    server_->push(Kind::kGivenUp, nullptr, {limit, run_signal_handlers_});
    suspended_ = false;
    return server_->clock();
  }

  bool test(Clock clock) {
    const GilReleased released;
    if (server_->is_released(clock)) return true;
    engine_->check();
    engine_->advance();
    return server_->is_released(clock);
  }

  void wait(Clock clock, const py::object& timeout) {
    const OneThread one(in_use_, server_->name());
    const Seconds limit = timeout_from(timeout);
    const GilReleased released;
    server_->wait(clock, {limit, run_signal_handlers_});
  }

  void pull(const py::buffer& out, const py::object& timeout, server::Version at_least) {
    const OneThread one(in_use_, server_->name());
    const py::buffer_info memory = requested(out, true, server_->name(), server_->options().count);
    const Seconds limit = timeout_from(timeout);
    const GilReleased released;
    server_->pull(static_cast<std::byte*>(memory.ptr), {limit, run_signal_handlers_}, at_least);
  }

  void push_pull(const py::buffer& gradient, const py::buffer& out, const py::object& timeout) {
    const OneThread one(in_use_, server_->name());
    const py::buffer_info from = requested(gradient, false, server_->name(), server_->options().count);
    const py::buffer_info into = requested(out, true, server_->name(), server_->options().count);
    check_overlap(from, into);
    const Seconds limit = timeout_from(timeout);
    const GilReleased released;
    const std::byte* const values = checked(from.ptr);
    suspended_ = false;
    server_->push_pull(kind_of(values), values, static_cast<std::byte*>(into.ptr), {limit, run_signal_handlers_});
  }

  bool settle(std::vector<Rank> dead, const py::object& timeout) {
    const Seconds limit = timeout_from(timeout);
    const GilReleased released;
    return server_->settle(std::move(dead), {limit, run_signal_handlers_});
  }

  py::list included() const {
    py::list shards;
    for (std::size_t s = 0; s < server_->layout().shards(); ++s) {
      const auto included = server_->included(s);
      if (!included) {
        shards.append(py::none());
        continue;
      }
      py::dict shard;
      shard["version"] = included->version;
      shard["used"] = included->used;
      shard["is_broken"] = included->is_broken;
      shards.append(shard);
    }
    return shards;
  }

  std::vector<std::size_t> bounds() const {
    std::vector<std::size_t> bounds;
    for (std::size_t s = 0; s <= server_->layout().shards(); ++s) bounds.push_back(server_->layout().first(s));
    return bounds;
  }

  py::bytearray arrays_of(std::size_t shard) const {
    const server::Layout& layout = server_->layout();
    py::bytearray out(static_cast<const char*>(nullptr), server_->arrays() * layout.count(shard) * layout.wide_bytes());
    server_->copy_arrays(shard, reinterpret_cast<std::byte*>(PyByteArray_AS_STRING(out.ptr())));
    return out;
  }

  std::shared_ptr<server::UpdateCalls> update_calls() const { return server_->update_calls(); }

  void suspend(const py::object& timeout) {
    const OneThread one(in_use_, server_->name());
    const Seconds limit = timeout_from(timeout);
    const GilReleased released;
    server_->suspend({limit, run_signal_handlers_});
    suspended_ = true;
  }

  py::tuple outcome() {
    const OneThread one(in_use_, server_->name());
    server::Outcome o;
    {
      const GilReleased released;
      o = server_->outcome();
    }
    return py::make_tuple(o.clock, o.version, o.staleness, o.used);
  }

  py::dict server_statistics(const py::object& timeout) {
    const OneThread one(in_use_, server_->name());
    const Seconds limit = timeout_from(timeout);
    std::vector<std::byte> memory;
    {
      const GilReleased released;
      memory = server_->counts({limit, run_signal_handlers_});
    }
    return statistics_from(server_->options(), memory);
  }

  py::capsule c_handle(const py::object& timeout) {
    const server::Options& options = server_->options();
    if (!handle_) {
      handle_ = std::make_unique<ServerHandle>(
          pyc_collective::Common{options.name, options.count, options.type, &in_use_, timeout_from(timeout),
                                 interrupt_c_call},
          server_, nan_, server_->layout().worker_of(engine_->rank()).has_value(), suspended_);
    }
    return capsule_of(handle_.get());
  }

  ParameterServer& operator*() { return *server_; }

 private:
  using Kind = ParameterServer::Kind;
  static Kind kind_of(const std::byte* values) { return values == nullptr ? Kind::kSkipped : Kind::kGradient; }
  /// Refuses a partial overlap: weights are written block by block while the gradient is read.
  void check_overlap(const py::buffer_info& gradient, const py::buffer_info& out) const {
    const auto* const from = static_cast<const std::byte*>(gradient.ptr);
    const auto* const into = static_cast<const std::byte*>(out.ptr);
    const std::size_t bytes = server_->layout().options().count * server_->layout().element_bytes();
    if (from == into || std::less_equal<>()(from + bytes, into) || std::less_equal<>()(into + bytes, from)) return;
    throw std::invalid_argument("'" + server_->name() +
                                "': the gradient and out overlap in part; expected the same memory or no common one");
  }
  /// Null if the gradient is to be skipped.
  const std::byte* checked(const void* memory) const {
    const server::Options& options = server_->options();
    return server::accepted(nan_, options.type, static_cast<const std::byte*>(memory), options.count, options.name);
  }

  const Engine::Interrupt run_signal_handlers_ = run_signal_handlers;
  Engine* const engine_;  // the server keeps it alive
  const NotFinite nan_;
  std::shared_ptr<ParameterServer> server_;
  std::atomic_flag in_use_;
  std::atomic<bool> suspended_{false};      // takes no part until the next push
  std::unique_ptr<pyc_collective> handle_;  // of calls from C
};

}  // namespace

void bind_parameter_server(py::module_& m) {
  using Bound = BoundParameterServer;
  const py::class_<server::UpdateCalls, std::shared_ptr<server::UpdateCalls>> update_calls(m, "UpdateCalls",
                                                                                           py::is_final());
  Definitions(update_calls).method("serve", "", [](server::UpdateCalls& calls) {
    const GilReleased released;
    calls.serve();
  });
  Definitions(update_calls).method("end", "", [](server::UpdateCalls& calls) { calls.end(); });
  const py::class_<Bound> parameter_server(m, "ParameterServer", py::is_final());
  ClassDefinitions(parameter_server)
      .constructor(
          "engine, *, weights, dtype_name, count, workers, servers, direct, sync, update, call=None, nan, nodes, "
          "timeout=None, name, recoverable=False, resumed=None",
          [](std::shared_ptr<Engine> engine, const py::buffer& weights, const std::string& dtype_name,
             std::size_t count, std::vector<Rank> workers, std::vector<Rank> servers, bool direct, const py::dict& sync,
             const py::dict& update, const py::object& call, const std::string& nan, std::vector<Rank> nodes,
             const py::object& timeout, std::string name, bool recoverable, const py::object& resumed) {
            server::Options options{.name = std::move(name),
                                    .count = count,
                                    .type = data_type(dtype_name),
                                    .workers = std::move(workers),
                                    .servers = std::move(servers),
                                    .direct = direct,
                                    .sync = sync_options_from(sync),
                                    .update = update_options_from(update),
                                    .recoverable = recoverable,
                                    .resumed = resumed_from(resumed)};
            return std::make_unique<Bound>(std::move(engine), weights, Nodes(std::move(nodes)), timeout_from(timeout),
                                           std::move(options), call, nan);
          })
      .method<&Bound::push>("push", "gradient, *, timeout=None")
      .method<&Bound::give_up>("give_up", "*, timeout=None")
      .method<&Bound::test>("test", "clock")
      .method<&Bound::wait>("wait", "clock, *, timeout=None")
      .method<&Bound::pull>("pull", "out, *, timeout=None, at_least=0")
      .method<&Bound::push_pull>("push_pull", "gradient, out, *, timeout=None")
      .method<&Bound::suspend>("suspend", "*, timeout=None")
      .method<&Bound::c_handle>("c_handle", "*, timeout=None")
      .method<&Bound::settle>("settle", "dead, *, timeout=None")
      .method<&Bound::included>("included", "")
      .property("arrays", [](Bound& b) { return (*b).arrays(); })
      .property<&Bound::bounds>("bounds")
      .method<&Bound::arrays_of>("arrays_of", "shard")
      .property("clock", [](Bound& b) { return (*b).clock(); })
      .property("version", [](Bound& b) { return (*b).version(); })
      .property<&Bound::outcome>("outcome")
      .property<&Bound::update_calls>("update_calls")
      .method<&Bound::server_statistics>("server_statistics", "*, timeout=None")
      .method("statistics", "", [](Bound& b) { return common_statistics(*b); });
  define_protocol<Bound>(Definitions(parameter_server));
  define_leave<Bound>(Definitions(parameter_server));
}

}  // namespace pyc
