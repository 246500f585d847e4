// P-Reduce, in groups from the caller and in groups from a generator.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/bound_partial_reduce.h"
#include "bindings/calls.h"
#include "bindings/devices.h"
#include "bindings/poll_until.h"
#include "c_api/handles.h"
#include "core/error.h"
#include "groups/generator.h"
#include "services/partial_reduce/explicit_groups.h"
#include "services/partial_reduce/partial_reduce.h"

namespace pyc {
namespace {

class BoundExplicitGroups {
 public:
  BoundExplicitGroups(std::shared_ptr<Engine> engine, const Nodes& nodes)
      : engine_(std::move(engine)),
        groups_(without_gil([&] { return ExplicitGroups::join(engine_, host_memory(), nodes); })) {}

  void reduce(const py::buffer& values, const std::string& dtype, const std::vector<Rank>& members,
              const std::string& op, const std::string& algorithm, const std::string& caller, Timeout timeout) {
    const OneThread one(in_use_, "preduce");
    const py::buffer_info memory = values.request(true);
    const GroupData data{static_cast<std::byte*>(memory.ptr), static_cast<std::size_t>(memory.size), data_type(dtype),
                         reduce_op(op)};
    const ExplicitGroups::Wanted wanted{members, data, algorithm, false, number_of(caller)};
    run_on(values, data.values, *groups_, [&] { groups_->reduce(wanted, timeout, run_signal_handlers); });
  }

  void refuse(const std::vector<Rank>& members, const std::string& reason) {
    const OneThread one(in_use_, "preduce");
    without_gil([&] { groups_->refuse_call(members, reason); });
  }

  /// Joins the members after the earlier work of `streams` has completed. The result is complete on return. `owner`
  /// keeps the memory at `data` alive.
  void reduce_on_device(std::optional<int> device, std::uintptr_t data, std::size_t count, const py::object& owner,
                        const std::vector<std::uintptr_t>& streams, const std::string& dtype,
                        const std::vector<Rank>& members, const std::string& op, const std::string& algorithm,
                        const std::string& caller, Timeout timeout) {
    const OneThread one(in_use_, "preduce");
    const GroupData values{memory_at(data), count, data_type(dtype), reduce_op(op)};
    const ExplicitGroups::Wanted wanted{members, values, algorithm, true, number_of(caller)};
    run_on(owner, values.values, *groups_, [&] {
      const Seconds begin = engine_->transport().now();
      const bool is_ready = groups_->on_device(members, [&] {
        use(device ? *device : device_at(data, count));
        return wait_for_streams(*engine_, *executor_, *callers_events_, streams, timeout);
      });
      if (!is_ready) {
        throw StallError(
            "preduce: the stream on which the values are made has not done its work in time; nothing was said to the "
            "other members, and another call may be made");
      }
      groups_->reduce_on_device(executor_, wanted, rest_of(timeout, begin, *engine_), run_signal_handlers);
    });
  }

  /// If another thread is in a call, its objects live until this object ends.
  void close() {
    groups_->close();
    if (in_use_.test_and_set(std::memory_order_acquire)) return;
    callers_events_.reset();
    executor_.reset();
    in_use_.clear(std::memory_order_release);
  }

  /// The handle for arrays of one count, type and operation.
  py::capsule c_handle(std::vector<Rank> nodes, std::size_t count, const std::string& dtype_name, const std::string& op,
                       std::vector<std::string> algorithms, bool on_board, Timeout timeout) {
    std::unique_ptr<pyc_collective>& handle = handles_[{count, dtype_name, op}];
    if (!handle) {
      handle = std::make_unique<PreduceHandle>(
          pyc_collective::Common{"preduce", count, data_type(dtype_name), &in_use_, timeout, interrupt_c_call}, engine_,
          groups_, reduce_op(op), Nodes(std::move(nodes)), std::move(algorithms), on_board);
    }
    return capsule_of(handle.get());
  }

  ExplicitGroups& operator*() { return *groups_; }

 private:
  static std::uint32_t number_of(const std::string& caller) {
    const auto found = std::find(kCallers.begin(), kCallers.end(), caller);
    if (found == kCallers.end()) throw std::invalid_argument("caller: unknown call " + caller);
    return static_cast<std::uint32_t>(found - kCallers.begin());
  }

  static int device_at(std::uintptr_t data, std::size_t count) {
    if (count == 0) return 0;
    const std::optional<int> device = device_of(data);
    if (!device) throw py::buffer_error("expected memory of a CUDA device, got address " + std::to_string(data));
    return *device;
  }

  void use(int device) {
    if (executor_ && device_ == device) return;
    std::shared_ptr<Executor> wanted = executor_in_use(device);
    callers_events_ = std::make_unique<CallersEvents>(*wanted);
    executor_ = std::move(wanted);
    device_ = device;
  }

  std::shared_ptr<Engine> engine_;
  int device_ = 0;  // the last one used
  std::shared_ptr<Executor> executor_;
  std::unique_ptr<CallersEvents> callers_events_;
  std::shared_ptr<ExplicitGroups> groups_;
  std::atomic_flag in_use_;
  std::map<std::tuple<std::size_t, std::string, std::string>, std::unique_ptr<pyc_collective>> handles_;
};

class BoundPartialReduce : public BoundCollective<PartialReduce> {
 public:
  using BoundCollective::BoundCollective;

  py::tuple average(const py::buffer& values, std::int64_t step, const std::vector<Rank>& group, Timeout timeout) {
    const OneThread one = alone();
    const py::buffer_info memory = memory_of(values, true);
    auto* const data = static_cast<std::byte*>(memory.ptr);
    GroupInfo info;
    run_on(values, data, **this, [&] { info = (**this).average(data, step, group, timeout, run_signal_handlers); });
    next_step_ = step + 1;
    return to_python(info);
  }

  void leave(const std::optional<py::buffer>& values) {
    py::buffer_info memory;
    if (values) memory = values->request();
    without_gil([&] { (**this).close_with(static_cast<const std::byte*>(memory.ptr)); });
  }

  py::capsule c_handle(Timeout timeout) { return handle_of<ReduceHandle>(timeout, next_step_); }
  std::int64_t next_step() const { return next_step_; }

 private:
  std::int64_t next_step_ = 0;
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

py::dict statistics_of(const BoundCollective<PartialReduce>& bound) {
  py::dict out = bound.statistics();
  out["averages"] = (*bound).averages();
  out["cache_hits"] = (*bound).cache_hits();
  out["cache_misses"] = (*bound).cache_misses();
  return out;
}

void bind_partial_reduce(py::module_& m) {
  using Explicit = BoundExplicitGroups;
  using ExplicitHolder = std::unique_ptr<Explicit, DeletedWithoutGil<Explicit>>;
  const py::class_<Explicit, ExplicitHolder> explicit_groups(m, "ExplicitGroups", py::is_final());
  ClassDefinitions(explicit_groups)
      .constructor("engine, *, nodes",
                   [](std::shared_ptr<Engine> engine, std::vector<Rank> nodes) {
                     return ExplicitHolder(new Explicit(std::move(engine), Nodes(std::move(nodes))));
                   })
      .method<&Explicit::reduce>("reduce", "values, *, dtype_name, members, op, algorithm, caller, timeout=None")
      .method<&Explicit::reduce_on_device>(
          "reduce_on_device",
          "device, data, *, count, owner, streams, dtype_name, members, op, algorithm, caller, timeout=None")
      .method<&Explicit::refuse>("refuse", "members, reason")
      .method<&Explicit::c_handle>("c_handle", "*, nodes, count, dtype_name, op, algorithms, on_board, timeout=None")
      .method("leave", "", kWithoutGil<&Explicit::close>)
      .property("cache_hits", [](Explicit& e) { return (*e).cache_hits(); })
      .property("cache_misses", [](Explicit& e) { return (*e).cache_misses(); });

  using Bound = BoundPartialReduce;
  const py::class_<Bound> partial_reduce(m, "PartialReduce", py::is_final());
  ClassDefinitions(partial_reduce)
      .constructor(
          "engine, *, count, dtype_name, op, by_staleness=False, generator=None, coordinator_rank=0, algorithms, "
          "nodes, timeout=None, name",
          [](std::shared_ptr<Engine> engine, std::size_t count, const std::string& dtype_name, const std::string& op,
             bool by_staleness, const GroupGenerator* generator, Rank coordinator_rank,
             std::vector<std::string> algorithms, std::vector<Rank> nodes, Timeout timeout, std::string name) {
            PartialReduceOptions options = options_from(count, dtype_name, op, by_staleness, generator,
                                                        coordinator_rank, std::move(algorithms), std::move(name));
            return std::make_unique<Bound>([&] {
              return PartialReduce::create(std::move(engine), host_memory(), std::move(options),
                                           Nodes(std::move(nodes)), timeout, run_signal_handlers);
            });
          })
      .function("check", "engine, *, count, dtype_name, op, by_staleness=False, algorithms, on_device=False",
                [](Engine& engine, std::size_t count, const std::string& dtype_name, const std::string& op,
                   bool by_staleness, std::vector<std::string> algorithms, bool on_device) {
                  PartialReduceOptions options =
                      options_from(count, dtype_name, op, by_staleness, nullptr, 0, std::move(algorithms), {});
                  options.on_device = on_device;
                  without_gil([&] { PartialReduce::check(engine, host_memory(), options); });
                })
      .method<&Bound::average>("average", "values, *, step, group=(), timeout=None")
      .method<&Bound::leave>("leave", "values=None")
      .method<&Bound::c_handle>("c_handle", "*, timeout=None")
      .property<&Bound::next_step>("next_step")
      .method("statistics", "", [](Bound& b) { return statistics_of(b); });
  define_usable<Bound>(Definitions(partial_reduce));
}

}  // namespace pyc
