#include "services/parameter_server/parameter_server.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/bound.h"
#include "bindings/calls.h"
#include "bindings/kept_object.h"
#include "bindings/parameter_server_options.h"
#include "c_api/handles.h"
#include "services/parameter_server/finite.h"
#include "services/parameter_server/ledger_copy.h"
#include "services/parameter_server/update_rule.h"

namespace pyc {
namespace {

using server::Clock;
using server::ParameterServer;

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

class BoundParameterServer : public BoundCollective<ParameterServer> {
 public:
  /// `engine`: the server keeps it alive.
  template <class Make>
  BoundParameterServer(Engine* engine, NotFinite nan, Make make) : BoundCollective(make), engine_(engine), nan_(nan) {}

  Clock push(const py::buffer& gradient, Timeout timeout) {
    const py::buffer_info memory = memory_of(gradient, false);
    return exclusively([&](ParameterServer& s) {
      const std::byte* const values = checked(memory.ptr);
      s.push(kind_of(values), values, {timeout, run_signal_handlers});
      suspended_ = false;
      return s.clock();
    });
  }

  Clock give_up(Timeout timeout) {
    return exclusively([&](ParameterServer& s) {
      s.push(Kind::kGivenUp, nullptr, {timeout, run_signal_handlers});
      suspended_ = false;
      return s.clock();
    });
  }

  bool test(Clock clock) {
    const GilReleased released;
    if ((**this).is_released(clock)) return true;
    engine_->check();
    engine_->advance();
    return (**this).is_released(clock);
  }

  void wait(Clock clock, Timeout timeout) {
    exclusively([&](ParameterServer& s) { s.wait(clock, {timeout, run_signal_handlers}); });
  }

  void pull(const py::buffer& out, Timeout timeout, server::Version at_least) {
    const py::buffer_info memory = memory_of(out, true);
    exclusively([&](ParameterServer& s) {
      s.pull(static_cast<std::byte*>(memory.ptr), {timeout, run_signal_handlers}, at_least);
    });
  }

  void push_pull(const py::buffer& gradient, const py::buffer& out, Timeout timeout) {
    const py::buffer_info from = memory_of(gradient, false);
    const py::buffer_info into = memory_of(out, true);
    check_overlap(from, into);
    exclusively([&](ParameterServer& s) {
      const std::byte* const values = checked(from.ptr);
      suspended_ = false;
      s.push_pull(kind_of(values), values, static_cast<std::byte*>(into.ptr), {timeout, run_signal_handlers});
    });
  }

  bool settle(std::vector<Rank> dead, Timeout timeout) {
    return without_gil([&] { return (**this).settle(std::move(dead), {timeout, run_signal_handlers}); });
  }

  py::list included() const {
    py::list shards;
    for (std::size_t s = 0; s < (**this).layout().shards(); ++s) {
      const auto included = (**this).included(s);
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
    for (std::size_t s = 0; s <= (**this).layout().shards(); ++s) bounds.push_back((**this).layout().first(s));
    return bounds;
  }

  py::bytearray arrays_of(std::size_t shard) const {
    const server::Layout& layout = (**this).layout();
    py::bytearray out(static_cast<const char*>(nullptr), (**this).arrays() * layout.count(shard) * layout.wide_bytes());
    (**this).copy_arrays(shard, reinterpret_cast<std::byte*>(PyByteArray_AS_STRING(out.ptr())));
    return out;
  }

  std::shared_ptr<server::UpdateCalls> update_calls() const { return (**this).update_calls(); }

  void suspend(Timeout timeout) {
    exclusively([&](ParameterServer& s) {
      s.suspend({timeout, run_signal_handlers});
      suspended_ = true;
    });
  }

  py::tuple outcome() {
    const server::Outcome o = exclusively([](ParameterServer& s) { return s.outcome(); });
    return py::make_tuple(o.clock, o.version, o.staleness, o.used);
  }

  py::dict server_statistics(Timeout timeout) {
    return statistics_from((**this).options(),
                           exclusively([&](ParameterServer& s) { return s.counts({timeout, run_signal_handlers}); }));
  }

  py::capsule c_handle(Timeout timeout) {
    const bool is_worker = (**this).layout().worker_of(engine_->rank()).has_value();
    return handle_of<ServerHandle>(timeout, nan_, is_worker, suspended_);
  }

 private:
  using Kind = ParameterServer::Kind;
  static Kind kind_of(const std::byte* values) { return values == nullptr ? Kind::kSkipped : Kind::kGradient; }
  /// Refuses a partial overlap: weights are written block by block while the gradient is read.
  void check_overlap(const py::buffer_info& gradient, const py::buffer_info& out) const {
    const auto* const from = static_cast<const std::byte*>(gradient.ptr);
    const auto* const into = static_cast<const std::byte*>(out.ptr);
    const std::size_t bytes = (**this).layout().options().count * (**this).layout().element_bytes();
    if (from == into || std::less_equal<>()(from + bytes, into) || std::less_equal<>()(into + bytes, from)) return;
    throw std::invalid_argument("'" + (**this).name() +
                                "': the gradient and out overlap in part; expected the same memory or no common one");
  }
  /// Null if the gradient is to be skipped.
  const std::byte* checked(const void* memory) const {
    const server::Options& options = (**this).options();
    return server::accepted(nan_, options.type, static_cast<const std::byte*>(memory), options.count, options.name);
  }

  Engine* const engine_;
  const NotFinite nan_;
  std::atomic<bool> suspended_{false};  // takes no part until the next push
};

}  // namespace

void bind_parameter_server(py::module_& m) {
  using Bound = BoundParameterServer;
  const py::class_<server::UpdateCalls, std::shared_ptr<server::UpdateCalls>> update_calls(m, "UpdateCalls",
                                                                                           py::is_final());
  Definitions(update_calls)
      .method("serve", "", kWithoutGil<&server::UpdateCalls::serve>)
      .method<&server::UpdateCalls::end>("end", "");
  const py::class_<Bound> parameter_server(m, "ParameterServer", py::is_final());
  ClassDefinitions(parameter_server)
      .constructor(
          "engine, *, weights, dtype_name, count, workers, servers, direct, sync, update, call=None, nan, nodes, "
          "timeout=None, name, recoverable=False, resumed=None",
          [](std::shared_ptr<Engine> engine, const py::buffer& weights, const std::string& dtype_name,
             std::size_t count, std::vector<Rank> workers, std::vector<Rank> servers, bool direct, const py::dict& sync,
             const py::dict& update, const py::object& call, const std::string& nan, std::vector<Rank> nodes,
             Timeout timeout, std::string name, bool recoverable, const py::object& resumed) {
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
            const server::Layout layout(options);
            const std::size_t arrays = 1 + options.update.states();
            const std::size_t elements = options.resumed ? arrays * count * layout.wide_bytes() : count;
            const py::buffer_info initial = requested(weights, false, options.name, elements);
            server::Update function = update_from(call, options, engine->rank());
            return std::make_unique<Bound>(engine.get(), not_finite(nan), [&] {
              return ParameterServer::create(std::move(engine), host_memory(), std::move(options),
                                             static_cast<const std::byte*>(initial.ptr), std::move(function),
                                             Nodes(std::move(nodes)), {timeout, run_signal_handlers});
            });
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
      .method("statistics", "", [](Bound& b) { return b.statistics(); });
  define_protocol<Bound>(Definitions(parameter_server));
}

}  // namespace pyc
