// The partial allreduce. Calls of every training step use Python's C API, all others use calls.h.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "bindings/bound_allreduce.h"
#include "bindings/c_api.h"
#include "bindings/calls.h"
#include "bindings/rounds.h"
#include "core/hot.h"

namespace pyc {
namespace {

/// The C++ value, where pybind11 stores it for a type with one C++ base and no Python base.
PYC_HOT BoundPartialAllreduce& bound_of(PyObject* self) {
  void* const bound = reinterpret_cast<py::detail::instance*>(self)->simple_value_holder[0];
  if (bound == nullptr) throw py::type_error("PartialAllreduce: __init__ was not called");
  return *static_cast<BoundPartialAllreduce*>(bound);
}

[[noreturn]] void refuse_stream(BoundPartialAllreduce& bound, PyObject* stream) {
  throw py::value_error((*bound).options().name + ": stream: expected None, as this collective is on the host, got " +
                        py::repr(stream).cast<std::string>());
}

/// Like `wait`, for a call that the application does not hold and so cannot wait for again.
PYC_HOT void wait_once(BoundPartialAllreduce& bound, Call& call, Seconds limit) {
  try {
    bound.wait(call, limit);
  } catch (const StallError& error) {
    std::string text = error.what();
    if (!text.ends_with('.')) text += '.';
    throw StallError(text + " The data is contributed: do not contribute it again.");
  }
}

PYC_HOT PyObject* contribute(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  return guarded([&] {
    BoundPartialAllreduce& bound = bound_of(self);
    PyObject* x = nullptr;
    PyObject* stream = Py_None;
    take_arguments("contribute", {values, count, names},
                   std::array{Parameter{"x", &x}, Parameter{"stream", &stream, true}}, 1);
    if (stream != Py_None) refuse_stream(bound, stream);
    return make_round(self, bound, bound.contribute(x, bound.default_limit()));
  });
}

PYC_HOT PyObject* contribute_and_wait(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  return guarded([&] {
    BoundPartialAllreduce& bound = bound_of(self);
    PyObject* x = nullptr;
    PyObject* timeout = Py_None;
    take_arguments("contribute_and_wait", {values, count, names},
                   std::array{Parameter{"x", &x}, Parameter{"timeout", &timeout, true}}, 1);
    const Seconds limit = bound.limit_from(timeout);
    const std::shared_ptr<Call> call = bound.contribute(x, limit);
    bound.wait(*call, limit);
    return make_round_info(call->info);
  });
}

/// What `allreduce` returns: the result, in `into` if it is given, and its round.
PYC_HOT PyObject* returned(BoundPartialAllreduce& bound, py::object into, const RoundInfo& round) {
  const auto info = py::reinterpret_steal<py::object>(make_round_info(round));
  if (into) {
    bound.write_result(into);
  } else {
    into = py::reinterpret_steal<py::object>(bound.result());
  }
  return PyTuple_Pack(2, into.ptr(), info.ptr());
}

/// Keeps what Python needs if a call of a collective that continues was interrupted. Returns the dead ranks, if a death
/// interrupted it.
std::optional<std::vector<Rank>> note_interruption(BoundPartialAllreduce& bound, PyObject* x,
                                                   std::uint64_t contributions_before, std::shared_ptr<Call> call) {
  bound.direct_calls().interrupt();
  std::optional<std::vector<Rank>> dead;
  try {
    throw;
  } catch (const RankFailedError& error) {
    dead = error.ranks();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the caller throws it again
  }
  if ((*bound).contributions() > contributions_before) {
    bound.keep(x, {.number = 0, .values = {}, .is_open = true, .has_died = dead.has_value(), .call = std::move(call)});
  }
  return dead;
}

/// Keeps the contribution of a direct call if its round does not contain it.
PYC_HOT void keep_if_late(BoundPartialAllreduce& bound, PyObject* x, const RoundInfo& info) {
  DirectCalls& direct = bound.direct_calls();
  if (info.included) return direct.forget_all();  // a round takes all data that a rank has handed over
  if ((*bound).options().late == PartialAllreduceOptions::Late::kDrop) return;
  bound.keep(x, {.number = 0, .values = {}, .call = nullptr});
  if (!direct.is_lookup_due()) return;
  try {
    direct.forget((*bound).delivered());
  } catch (const RankFailedError&) {  // NOLINT(bugprone-empty-catch): the next call finds the death
  }
}

/// The usual `allreduce`, of a collective that continues after deaths. See direct_calls.h.
PYC_HOT PyObject* allreduce_directly(BoundPartialAllreduce& bound, PyObject* x, PyObject* out, PyObject* timeout,
                                     PyObject* stream) {
  DirectCalls& direct = bound.direct_calls();
  std::optional<std::vector<Rank>> dead;
  Seconds limit = bound.limit_from(timeout);
  {
    const DirectCalls::Use use(direct);
    if (use.is_direct()) {
      py::object into;
      if (out != Py_None) into = bound.receiver(out);
      const std::uint64_t before = (*bound).contributions();
      const Seconds begin = bound.now();
      std::shared_ptr<Call> call;
      try {
        call = bound.contribute(x, limit);
        wait_once(bound, *call, limit);
      } catch (...) {
        dead = note_interruption(bound, x, before, call);
        if (!dead) throw;
      }
      if (!dead) {
        keep_if_late(bound, x, call->info);
        return returned(bound, std::move(into), call->info);
      }
      if (limit >= 0) limit = std::max(limit - (bound.now() - begin), 0.0);
    }
  }
  if (!dead) {
    return direct.fallback()(py::handle(x), py::handle(out), py::handle(timeout), py::handle(stream), py::none())
        .release()
        .ptr();
  }
  const double rest = limit < 0 ? std::numeric_limits<double>::infinity() : limit;
  return direct.fallback()(py::handle(x), py::handle(out), rest, py::handle(stream), *dead).release().ptr();
}

PYC_HOT PyObject* allreduce(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  return guarded([&] {
    BoundPartialAllreduce& bound = bound_of(self);
    PyObject* x = nullptr;
    PyObject* out = Py_None;
    PyObject* timeout = Py_None;
    PyObject* stream = Py_None;
    take_arguments("allreduce", {values, count, names},
                   std::array{Parameter{"x", &x}, Parameter{"out", &out}, Parameter{"timeout", &timeout, true},
                              Parameter{"stream", &stream, true}},
                   1);
    if (stream != Py_None) refuse_stream(bound, stream);
    if (bound.direct_calls().fallback()) return allreduce_directly(bound, x, out, timeout, stream);
    const Seconds limit = bound.limit_from(timeout);
    py::object into;
    if (out != Py_None) into = bound.receiver(out);
    const std::shared_ptr<Call> call = bound.contribute(x, limit);
    wait_once(bound, *call, limit);
    return returned(bound, std::move(into), call->info);
  });
}

PYC_HOT PyObject* result(PyObject* self, void*) {
  return guarded([&] { return bound_of(self).result(); });
}

/// Accumulators in bytes that `recovery_state` has returned; null for None.
const std::byte* raw(PartialAllreduce& collective, const std::optional<py::bytes>& values) {
  if (!values) return nullptr;
  const std::string_view view(*values);
  const PartialAllreduceOptions& options = collective.options();
  if (view.size() != options.count * size_of(elements_of(options.type, options.op).accumulator)) {
    throw std::invalid_argument(options.name + ": expected values that recovery_state() has returned");
  }
  return reinterpret_cast<const std::byte*>(view.data());
}

py::object to_python(const RecoveryState::Values& values) {
  if (values.data.empty()) return py::none();
  const py::bytes data(reinterpret_cast<const char*>(values.data.data()), values.data.size());
  return py::make_tuple(data, values.divisor);
}

py::object to_python(const RoundInfo& info) { return py::reinterpret_steal<py::object>(make_round_info(info)); }

py::dict state_of(PartialAllreduce& collective) {
  const RecoveryState state = collective.recovery_state();
  py::dict out;
  out["completed"] = state.completed;
  out["newest"] = py::none();
  if (state.newest) {
    const auto& [info, flush, result] = *state.newest;
    out["newest"] = py::make_tuple(to_python(info), flush, to_python(result));
  }
  out["contributions"] = state.contributions;
  out["delivered"] = state.delivered;
  out["taken"] = state.taken;
  out["lacking"] = state.lacking;
  out["missed"] = state.missed;
  out["sum"] = to_python(state.sum);
  out["flushed"] = state.flushed ? to_python(*state.flushed) : py::object(py::none());
  return out;
}

PyMethodDef contribute_method = {"contribute", as_method(&contribute), METH_FASTCALL | METH_KEYWORDS,
                                 "contribute($self, /, x)\n--\n\nHands `x` over; the request of its round."};
PyMethodDef contribute_and_wait_method = {
    "contribute_and_wait", as_method(&contribute_and_wait), METH_FASTCALL | METH_KEYWORDS,
    "contribute_and_wait($self, /, x, *, timeout=None)\n--\n\n`contribute(x).wait()` without the request."};
PyMethodDef allreduce_method = {
    "allreduce", as_method(&allreduce), METH_FASTCALL | METH_KEYWORDS,
    "allreduce($self, /, x, out=None, *, timeout=None)\n--\n\nContributes and waits; the result and the RoundInfo."};
PyGetSetDef result_member = {"result", &result, nullptr, "The newest result that was given, read-only.", nullptr};

}  // namespace

void bind_partial_allreduce(py::module_& m) {
  bind_rounds(m);
  define_result_memory();

  using Bound = BoundPartialAllreduce;
  const py::class_<Bound> type(m, "PartialAllreduce", py::is_final());
  ClassDefinitions(type)
      .constructor(
          "engine, *, nodes=None, segment_bytes=" + std::to_string(kSegmentBytes) +
              ", timeout=None, default_timeout=None, shape, dtype, dtype_name, convert, writable, name='', **policy",
          [](std::shared_ptr<Engine> engine, std::optional<std::vector<Rank>> nodes, std::size_t segment_bytes,
             Timeout timeout, const py::object& default_timeout, std::vector<py::ssize_t> shape, py::dtype dtype,
             const std::string& dtype_name, py::object convert, py::object writable, std::string name,
             const py::kwargs& policy) {
            PartialAllreduceOptions options = options_from(policy);
            options.type = data_type(dtype_name);
            options.count = 1;
            for (const py::ssize_t extent : shape) options.count *= static_cast<std::size_t>(extent);
            options.name = std::move(name);
            options.segment_bytes = segment_bytes;
            const Nodes map = nodes ? Nodes(std::move(*nodes)) : Nodes::of_size(engine->size(), 1);
            auto bound = std::make_unique<Bound>(std::move(engine), map, timeout, std::move(options), std::move(dtype),
                                                 std::move(shape), std::move(convert), std::move(writable));
            bound->set_default_timeout(default_timeout);
            return bound;
          })
      .method("c_handle", "*, timeout=None",
              [](Bound& b, const py::object& timeout) { return capsule_of(b.c_handle(b.limit_from(timeout.ptr()))); })
      .method("recovery_state", "", [](Bound& b) { return state_of(*b); })
      .method("continue_from", "lacking, missed, values, divisor",
              [](Bound& b, std::uint64_t lacking, std::uint64_t missed, const std::optional<py::bytes>& values,
                 std::size_t divisor) { (*b).continue_from(lacking, missed, raw(*b, values), divisor); })
      .method("deposit", "x", [](Bound& b, const py::object& x) { b.deposit(x.ptr()); })
      .method<&Bound::receive_pending>("receive_pending", "")
      .method("set_result", "values, divisor",
              [](Bound& b, const std::optional<py::bytes>& values, std::size_t divisor) {
                (*b).set_result(raw(*b, values), divisor);
              })
      .method("set_fallback", "fallback",
              [](Bound& b, py::object fallback) { b.direct_calls().set_fallback(std::move(fallback)); })
      .method("begin_direct", "", [](Bound& b) { b.direct_calls().begin(); })
      .method("end_direct", "*, waits",
              [](const py::object& self, bool waits) {
                auto& b = self.cast<Bound&>();
                py::list kept;
                for (DirectCalls::Kept& one : b.direct_calls().end(waits, (*b).options().name)) {
                  py::object handle = py::none();
                  if (one.call) handle = py::reinterpret_steal<py::object>(make_round(self.ptr(), b, one.call));
                  kept.append(py::make_tuple(one.number, one.values, one.is_open, one.has_died, handle));
                }
                return kept;
              })
      .property("direct_user", [](Bound& b) { return b.direct_calls().user(); })
      .property("contributions", [](Bound& b) { return (*b).contributions(); })
      .property("ended", [](Bound& b) { return (*b).ended(); })
      .property("delivered", [](Bound& b) { return (*b).delivered(); })
      .property("algorithm", [](Bound& b) { return (*b).options().algorithm; })
      .property("schedule", [](Bound& b) {
        const Schedule* const plan = b.schedule();
        return plan == nullptr ? py::object(py::none()) : py::cast(*plan);
      });
  define_partial_allreduce<Bound>(Definitions(type));

  auto* const raw = reinterpret_cast<PyTypeObject*>(type.ptr());
  for (PyMethodDef* const method : {&contribute_method, &contribute_and_wait_method, &allreduce_method}) {
    type.attr(method->ml_name) = py::reinterpret_steal<py::object>(PyDescr_NewMethod(raw, method));
  }
  type.attr(result_member.name) = py::reinterpret_steal<py::object>(PyDescr_NewGetSet(raw, &result_member));
}

}  // namespace pyc
