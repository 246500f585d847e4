// The partial allreduce, its handle and what it tells.
#include <cstring>

#include <algorithm>
#include <atomic>

#include "bindings/bindings.h"
#include "core/error.h"
#include "memory/memory.h"
#include "services/board_allreduce.h"
#include "services/flat_allreduce.h"

namespace pyc {
namespace {

/// A C-contiguous view of a Python object's memory.
class ContiguousView {
 public:
  explicit ContiguousView(const py::object& object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw py::error_already_set();
  }
  ~ContiguousView() { PyBuffer_Release(&view_); }
  ContiguousView(const ContiguousView&) = delete;
  ContiguousView& operator=(const ContiguousView&) = delete;
  const std::byte* data() const { return static_cast<const std::byte*>(view_.buf); }
  std::size_t bytes() const { return static_cast<std::size_t>(view_.len); }

 private:
  Py_buffer view_{};
};

/// One thread at a time: a second one in a call of the same collective is refused, not let in to corrupt it.
class ExclusiveUse {
 public:
  ExclusiveUse(std::atomic_flag& in_use, const std::string& name) : in_use_(in_use) {
    if (in_use_.test_and_set(std::memory_order_acquire)) {
      throw std::runtime_error(name +
                               ": called while another thread is in a call of this collective; one thread at a "
                               "time, or one collective per thread");
    }
  }
  ~ExclusiveUse() { in_use_.clear(std::memory_order_release); }
  ExclusiveUse(const ExclusiveUse&) = delete;
  ExclusiveUse& operator=(const ExclusiveUse&) = delete;

 private:
  std::atomic_flag& in_use_;
};

struct BoundRound {
  std::shared_ptr<PartialAllreduce> collective;
  std::shared_ptr<Call> call;
  std::shared_ptr<std::atomic_flag> in_use;

  bool test() {
    const ExclusiveUse use(*in_use, collective->options().name);
    const py::gil_scoped_release released;
    return collective->test(*call);
  }
  py::object wait(const py::object& timeout) {
    const Seconds limit = timeout_from(timeout);
    if (!call->given) {
      const ExclusiveUse use(*in_use, collective->options().name);
      const py::gil_scoped_release released;
      collective->wait(*call, limit, run_signal_handlers);
    }
    return round_info(call->info);
  }
};

class BoundPartialAllreduce {
 public:
  /// `path`: "flat" or "board"; making a board is collective and takes at most `timeout` seconds.
  BoundPartialAllreduce(std::shared_ptr<Engine> engine, const std::string& path, Seconds timeout,
                        PartialAllreduceOptions options, py::dtype dtype, std::vector<py::ssize_t> shape,
                        py::object convert)
      : dtype_(std::move(dtype)),
        shape_(std::move(shape)),
        bytes_(options.count * size_of(options.type)),
        convert_(std::move(convert)),
        engine_(engine) {
    const py::gil_scoped_release released;  // an algorithm written in Python takes it again
    if (path == "board") {
      collective_ =
          BoardAllreduce::create(std::move(engine), host_memory(), std::move(options), timeout, run_signal_handlers);
    } else if (path == "flat") {
      auto flat = FlatAllreduce::create(std::move(engine), host_memory(), std::move(options));
      schedule_ = flat->schedule();
      collective_ = std::move(flat);
    } else {
      throw std::invalid_argument("path: expected 'flat' or 'board', got '" + path + "'");
    }
  }

  bool in_own_process() const { return engine_->is_in_own_process(); }
  const std::optional<Schedule>& schedule() const { return schedule_; }

  PartialAllreduce& operator*() { return *collective_; }

  /// `data`: an array of exactly the collective's shape and type, or what `convert` makes bytes of.
  BoundRound contribute(const py::object& data) {
    if (is_plain(data)) return hand_over(reinterpret_cast<const std::byte*>(py::detail::array_proxy(data.ptr())->data));
    const ContiguousView view(convert_(data));
    if (view.bytes() != bytes_) {
      throw std::invalid_argument(collective_->options().name + ": expected " + std::to_string(bytes_) +
                                  " bytes, got " + std::to_string(view.bytes()));
    }
    return hand_over(view.data());
  }

  py::array result() const {
    std::shared_ptr<const std::byte> buffer = collective_->result();
    if (!buffer) throw std::runtime_error(collective_->options().name + ": no result yet: contribute and wait first");
    const std::byte* const data = buffer.get();
    using Reference = std::shared_ptr<const std::byte>;  // the array keeps the buffer from being used again
    const py::capsule owner(new Reference(std::move(buffer)), [](void* p) { delete static_cast<Reference*>(p); });
    py::array array(dtype_, shape_, {}, data, owner);
    py::detail::array_proxy(array.ptr())->flags &= ~py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
    return array;
  }

  py::object flush(const py::object& timeout) {
    const Seconds limit = timeout_from(timeout);
    std::shared_ptr<Call> call;
    {
      const ExclusiveUse use(*in_use_, collective_->options().name);
      const py::gil_scoped_release released;
      call = collective_->start_flush();
      collective_->wait(*call, limit, run_signal_handlers);
    }
    return round_info(call->info);
  }

 private:
  BoundRound hand_over(const std::byte* data) {
    const ExclusiveUse use(*in_use_, collective_->options().name);
    const py::gil_scoped_release released;
    return {collective_, collective_->contribute(data), in_use_};
  }

  /// The common case, told without calling into Python or NumPy.
  bool is_plain(const py::object& data) const {
    if (Py_TYPE(data.ptr()) != py::detail::npy_api::get().PyArray_Type_) return false;
    const auto* const array = py::detail::array_proxy(data.ptr());
    return array->descr == dtype_.ptr() && array->nd == static_cast<int>(shape_.size()) &&
           std::equal(shape_.begin(), shape_.end(), array->dimensions) &&
           (array->flags & py::detail::npy_api::NPY_ARRAY_C_CONTIGUOUS_) != 0;
  }

  py::dtype dtype_;
  std::vector<py::ssize_t> shape_;
  std::size_t bytes_;
  py::object convert_;
  std::shared_ptr<Engine> engine_;
  std::optional<Schedule> schedule_;  // of the flat path
  std::shared_ptr<PartialAllreduce> collective_;
  std::shared_ptr<std::atomic_flag> in_use_ = std::make_shared<std::atomic_flag>();
};

std::string repr(const RoundInfo& info) {
  return "RoundInfo(round=" + std::to_string(info.round) + ", initiator=" + std::to_string(info.initiator) +
         ", included=" + (info.included ? "True" : "False") +
         ", contributors=" + py::repr(py::tuple(py::cast(info.contributor_list()))).cast<std::string>() +
         ", active=" + std::to_string(info.active) + ", staleness=" + std::to_string(info.staleness) +
         ", missed=" + std::to_string(info.missed) + ", overrun=" + (info.overrun ? "True" : "False") + ")";
}

}  // namespace

py::object round_info(const RoundInfo& info) { return py::cast(info); }

void bind_partial_allreduce(py::module_& m) {
  py::class_<RoundInfo>(m, "RoundInfo", "What a call is told of the round that it was given.")
      .def_readonly("round", &RoundInfo::round, "The number of the round, from 0.")
      .def_readonly("initiator", &RoundInfo::initiator, "The lowest rank that started the round.")
      .def_readonly("included", &RoundInfo::included, "Whether the data of this call is in the result.")
      .def_property_readonly(
          "contributors", [](const RoundInfo& info) { return py::tuple(py::cast(info.contributor_list())); },
          "The ranks whose data is in the result, ascending; the same on every rank.")
      .def_readonly(
          "active", &RoundInfo::active,
          "How many contributors have fresh data: their newest came by a call that arrived in this very round.")
      .def_readonly("staleness", &RoundInfo::staleness,
                    "Rounds completed between the handing over of this rank's data and the round that took it.")
      .def_readonly("missed", &RoundInfo::missed, "Rounds completed since this rank last looked, this one apart.")
      .def_readonly("overrun", &RoundInfo::overrun,
                    "Whether more were missed than `history`. Under missed='sum' they are in the result all the same.")
      .def("__repr__", &repr);

  py::class_<BoundRound>(m, "Round", "Handle of one contribution.")
      .def("test", &BoundRound::test,
           "Whether the round is done; if so, `result` is up to date. Moves messages, waits for nothing.")
      .def("wait", &BoundRound::wait, py::arg("timeout") = py::none(),
           "Waits until the round is done. StallError after `timeout` seconds names who has not arrived.")
      .def("Test", &BoundRound::test, "`test`.")
      .def("Wait", &BoundRound::wait, py::arg("timeout") = py::none(), "`wait`.")
      .def_property_readonly(
          "late", [](const BoundRound& r) { return r.call->late; },
          "Whether rounds had completed that this rank had not been given: the call waits for nothing then.");

  using Bound = BoundPartialAllreduce;
  py::class_<Bound>(m, "PartialAllreduce")
      .def(py::init([](std::shared_ptr<Engine> engine, const std::string& path, const py::object& timeout,
                       std::vector<py::ssize_t> shape, py::dtype dtype, const std::string& dtype_name,
                       py::object convert, const std::string& op, const std::string& policy, int policy_size,
                       std::uint64_t seed, double grace, const std::string& late, const std::string& missed,
                       std::optional<std::uint64_t> max_staleness, const std::string& activation,
                       const std::string& algorithm, std::size_t history, std::string name) {
             PartialAllreduceOptions options = options_from(
                 {policy, policy_size, seed, grace, late, missed, max_staleness, activation, algorithm, history, op});
             options.type = data_type(dtype_name);
             options.count = 1;
             for (const py::ssize_t extent : shape) options.count *= static_cast<std::size_t>(extent);
             options.name = std::move(name);
             return std::make_unique<Bound>(std::move(engine), path, timeout_from(timeout), std::move(options),
                                            std::move(dtype), std::move(shape), std::move(convert));
           }),
           py::arg("engine"), py::kw_only(), py::arg("path") = "flat", py::arg("timeout") = py::none(),
           py::arg("shape"), py::arg("dtype"), py::arg("dtype_name"), py::arg("convert"), py::arg("op"),
           py::arg("policy"), py::arg("policy_size") = 0, py::arg("seed") = 0, py::arg("grace") = 0.0,
           py::arg("late") = "accumulate", py::arg("missed") = "latest", py::arg("max_staleness") = py::none(),
           py::arg("activation") = "tree", py::arg("algorithm") = "recursive_doubling", py::arg("history") = 8,
           py::arg("name") = "")
      .def("contribute", &Bound::contribute, py::arg("x"))
      .def_property_readonly("result", &Bound::result)
      .def("flush", &Bound::flush, py::arg("timeout") = py::none())
      .def(
          "close", [](Bound& b) { (*b).close(); }, py::call_guard<py::gil_scoped_release>())
      .def(
          "discard", [](Bound& b) { return (*b).discard(); }, py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("closed", [](Bound& b) { return (*b).closed(); })
      .def_property_readonly("rounds", [](Bound& b) { return (*b).rounds(); })
      .def_property_readonly("name", [](Bound& b) { return (*b).options().name; })
      .def_property_readonly("algorithm", [](Bound& b) { return (*b).options().algorithm; })
      .def_property_readonly("in_own_process", &Bound::in_own_process)
      .def_property_readonly("schedule", &Bound::schedule);
}

}  // namespace pyc
