#include "bindings/bound_allreduce.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "bindings/c_api.h"
#include "core/error.h"
#include "core/hot.h"
#include "memory/memory.h"

namespace pyc {
namespace {

using Numpy = py::detail::npy_api;

constexpr std::size_t kSmallBytes = 64 << 10;  // of all ranks: takes a few microseconds to copy

/// Owns the memory of a result. The base of the arrays over it.
using ResultMemory = std::shared_ptr<const std::byte>;

class ContiguousView {
 public:
  explicit ContiguousView(const py::object& object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw py::error_already_set();
  }
  ~ContiguousView() { PyBuffer_Release(&view_); }
  ContiguousView(const ContiguousView&) = delete;
  ContiguousView& operator=(const ContiguousView&) = delete;
  const void* data() const { return view_.buf; }
  std::size_t bytes() const { return static_cast<std::size_t>(view_.len); }

 private:
  Py_buffer view_{};
};

}  // namespace

/// A second thread would corrupt the collective.
PYC_HOT OneThread BoundPartialAllreduce::alone() {
  return {in_use_, collective_->options().name, [](const std::string& name) {
            throw std::runtime_error(name +
                                     ": called while another thread is in a call of this collective; one thread at a "
                                     "time, or one collective per thread");
          }};
}

py::dict statistics_of(const PartialAllreduce& collective) {
  const PartialAllreduceStatistics counts = collective.statistics();
  py::dict out;
  out["rounds"] = collective.rounds();
  out["contributions"] = counts.contributions;
  out["included"] = counts.included;
  out["late"] = counts.late;
  out["missed"] = counts.missed;
  out["overrun"] = counts.overrun;
  out["waited"] = counts.waited;
  out["memory_bytes"] = collective.memory_bytes();
  py::list stragglers;
  for (const Absences::OfRank& of : collective.absences())
    stragglers.append(py::make_tuple(of.rank, of.rounds, of.longest));
  out["stragglers"] = stragglers;
  return out;
}

void define_result_memory() { Objects<ResultMemory>::define("pycollectives._core.ResultMemory", {{0, nullptr}}); }

BoundPartialAllreduce::BoundPartialAllreduce(std::shared_ptr<Engine> engine, const Nodes& nodes, Seconds timeout,
                                             PartialAllreduceOptions options, py::dtype dtype,
                                             std::vector<py::ssize_t> shape, py::object convert, py::object writable)
    : array_type_(Numpy::get().PyArray_Type_),
      dtype_(std::move(dtype)),
      shape_(std::move(shape)),
      bytes_(options.count * size_of(options.type)),
      // With another `missed`, a total may be pending on another rank, and a call waits for it.
      small_(bytes_ <= kSmallBytes / static_cast<std::size_t>(engine->size()) &&
             options.missed == PartialAllreduceOptions::Missed::kLatest),
      // With several nodes, a call may do pending work of the engine, for other collectives too.
      brief_(small_ && nodes.count() == 1),
      convert_(std::move(convert)),
      writable_(std::move(writable)),
      engine_(engine) {
  const GilReleased released;  // an algorithm written in Python takes the GIL again
  collective_ = PartialAllreduce::create(std::move(engine), host_memory(), std::move(options), nodes, timeout,
                                         run_signal_handlers);
  contributor_ = std::make_unique<Contributor>(*engine_, *collective_);
}

BoundPartialAllreduce::BoundPartialAllreduce(std::shared_ptr<Engine> engine,
                                             std::shared_ptr<PartialAllreduce> collective)
    : array_type_(nullptr),
      bytes_(collective->options().count * size_of(collective->options().type)),
      small_(false),
      brief_(false),
      collective_(std::move(collective)),
      engine_(std::move(engine)) {
  contributor_ = std::make_unique<Contributor>(*engine_, *collective_);
}

pyc_collective* BoundPartialAllreduce::c_handle(Seconds default_limit) {
  const PartialAllreduceOptions& options = collective_->options();
  if (!handle_) {
    handle_ = std::make_unique<AllreduceHandle>(
        pyc_collective::Common{options.name, options.count, options.type, &in_use_, default_limit, interrupt_c_call},
        collective_, *contributor_);
  }
  return handle_.get();
}

void BoundPartialAllreduce::set_default_timeout(py::handle timeout) {
  default_limit_ = timeout_from(timeout);
  collective_->while_stopped(run_signal_handlers, [] {
    const GilReleased released(PyGILState_Check() != 0);  // briefly: short calls hold the GIL
    std::this_thread::yield();
  });
}

std::shared_ptr<Call> BoundPartialAllreduce::contribute_when_made(const std::byte* data,
                                                                  DeviceHandover::Producers producers) {
  const OneThread one = alone();
  const GilReleased released;
  contributor_->note_contribution();
  return collective_->contribute_when_made(data, producers, run_signal_handlers);
}

void BoundPartialAllreduce::finish_handing_over(Seconds limit) {
  if (collective_->options().on_device) collective_->finish_handing_over(limit, run_signal_handlers);
}

bool BoundPartialAllreduce::is_late(const Call& call) {
  if (collective_->options().on_device) {
    const OneThread one = alone();
    const GilReleased released;
    finish_handing_over(default_limit_);
  }
  return call.late;
}

void BoundPartialAllreduce::with_result(const std::function<void(std::shared_ptr<const std::byte>)>& use) {
  const OneThread one = alone();
  const GilReleased released;
  ResultMemory memory = collective_->result();
  if (!memory) throw std::runtime_error(collective_->options().name + ": no result yet: contribute and wait first");
  use(std::move(memory));
}

void BoundPartialAllreduce::deposit(PyObject* data) {
  const OneThread one = alone();
  const ContiguousView view(is_plain(data) ? py::reinterpret_borrow<py::object>(data) : convert_(py::handle(data)));
  if (view.bytes() != bytes_) throw InternalError("a deposit of another length");
  collective_->deposit(static_cast<const std::byte*>(view.data()));
}

void BoundPartialAllreduce::keep(PyObject* data, DirectCalls::Kept kept) {
  const ContiguousView view(is_plain(data) ? py::reinterpret_borrow<py::object>(data) : convert_(py::handle(data)));
  if (collective_->options().late == PartialAllreduceOptions::Late::kReplace) direct_calls_.forget_all();
  kept.values = direct_calls_.take_spare();
  if (!kept.values) kept.values = py::array(dtype_, shape_);
  if (bytes_ > 0) std::memcpy(py::detail::array_proxy(kept.values.ptr())->data, view.data(), bytes_);
  kept.number = collective_->contributions();
  direct_calls_.keep(std::move(kept));
}

void BoundPartialAllreduce::receive_pending() {
  const OneThread one = alone();
  const GilReleased released;
  collective_->receive_pending();
}

PYC_HOT std::shared_ptr<Call> BoundPartialAllreduce::contribute(PyObject* data, Seconds limit) {
  if (is_plain(data)) return hand_over(py::detail::array_proxy(data)->data, limit);
  const ContiguousView view(convert_(py::handle(data)));
  if (view.bytes() != bytes_) {
    throw std::invalid_argument(collective_->options().name + ": expected " + std::to_string(bytes_) + " bytes, got " +
                                std::to_string(view.bytes()));
  }
  return hand_over(view.data(), limit);
}

/// The common case, checked without a call into Python or NumPy.
PYC_HOT bool BoundPartialAllreduce::is_plain(PyObject* data) const {
  if (Py_TYPE(data) != array_type_) return false;
  const auto* const array = py::detail::array_proxy(data);
  if (array->descr != dtype_.ptr() || array->nd != static_cast<int>(shape_.size())) return false;
  for (std::size_t i = 0; i < shape_.size(); ++i) {
    if (shape_[i] != array->dimensions[i]) return false;
  }
  return (array->flags & Numpy::NPY_ARRAY_C_CONTIGUOUS_) != 0;
}

PYC_HOT std::shared_ptr<Call> BoundPartialAllreduce::hand_over(const void* data, Seconds limit) {
  const OneThread one = alone();
  contributor_->note_contribution();
  const GilReleased released(!brief_);
  return collective_->contribute(static_cast<const std::byte*>(data), limit);
}

PYC_HOT bool BoundPartialAllreduce::ends_at_once(const Call& call) const {
  return small_ && collective_->rounds() > call.round;
}

PYC_HOT bool BoundPartialAllreduce::test(Call& call) {
  const OneThread one = alone();
  const GilReleased released(!ends_at_once(call));
  return collective_->test(call);
}

PYC_HOT void BoundPartialAllreduce::wait(Call& call, Seconds limit) {
  const OneThread one = alone();
  if (call.given) return;
  if (ends_at_once(call) && collective_->test(call)) return;
  const GilReleased released;
  collective_->wait(call, limit, run_signal_handlers);
}

void BoundPartialAllreduce::start_flush() {
  const OneThread one = alone();
  const GilReleased released;
  finish_handing_over(default_limit_);
  collective_->start_flush(default_limit_);
}

void BoundPartialAllreduce::close() {
  if (collective_->options().on_device && collective_->closed()) return;
  const GilReleased released;
  try {
    finish_handing_over(default_limit_);
  } catch (const DeviceError&) {  // NOLINT(bugprone-empty-catch): of a collective that this rank needs no more
  }
  collective_->close();
}

RoundInfo BoundPartialAllreduce::flush(Seconds limit) {
  const OneThread one = alone();
  const GilReleased released;
  const Seconds begin = engine_->transport().now();
  const auto remaining = [&] {
    return limit < 0 ? limit : std::max(limit - (engine_->transport().now() - begin), 0.0);
  };
  finish_handing_over(limit);
  const std::shared_ptr<Call> call = collective_->start_flush(remaining());
  const RoundInfo& info = collective_->wait(*call, remaining(), run_signal_handlers);
  contributor_->note_flush();
  return info;
}

std::size_t BoundPartialAllreduce::abort() {
  std::size_t discarded = 0;
  const auto discard = [&] {
    try {
      discarded = collective_->discard();
    } catch (const RankFailedError&) {
      discarded = 0;  // the board is lost for all ranks
    }
    collective_->abort();
  };
  if (engine_->is_in_own_process()) {
    engine_->exclusively(discard);  // the engine's progress may be handing data over
  } else {
    discard();
  }
  engine_->advance();
  return discarded;
}

PYC_HOT PyObject* BoundPartialAllreduce::result() {
  const OneThread one = alone();
  ResultMemory memory = collective_->result();
  if (!memory) throw std::runtime_error(collective_->options().name + ": no result yet: contribute and wait first");
  void* const data = const_cast<std::byte*>(memory.get());  // the array is not writable
  // Keeps the memory from being used again.
  py::object keeper = py::reinterpret_steal<py::object>(Objects<ResultMemory>::make(std::move(memory)));
  const Numpy& numpy = Numpy::get();
  auto array = py::reinterpret_steal<py::object>(numpy.PyArray_NewFromDescr_(
      numpy.PyArray_Type_, dtype_.inc_ref().ptr(), static_cast<int>(shape_.size()), shape_.data(), nullptr, data,
      Numpy::NPY_ARRAY_C_CONTIGUOUS_ | Numpy::NPY_ARRAY_ALIGNED_, nullptr));
  if (!array || numpy.PyArray_SetBaseObject_(array.ptr(), keeper.release().ptr()) != 0) throw py::error_already_set();
  return array.release().ptr();
}

PYC_HOT py::object BoundPartialAllreduce::receiver(PyObject* out) const {
  const auto is_writable = [](const py::object& array) {
    return (py::detail::array_proxy(array.ptr())->flags & Numpy::NPY_ARRAY_WRITEABLE_) != 0;
  };
  auto array = py::reinterpret_borrow<py::object>(out);
  if (is_plain(out) && is_writable(array)) return array;
  array = writable_(array);
  const auto flat = py::reinterpret_borrow<py::array>(array);
  if (Py_TYPE(array.ptr()) != array_type_ || !is_writable(array) || static_cast<std::size_t>(flat.nbytes()) != bytes_ ||
      (flat.flags() & py::array::c_style) == 0) {
    throw std::invalid_argument(collective_->options().name + ": `writable` made no array to write the result to");
  }
  return array;
}

PYC_HOT void BoundPartialAllreduce::write_result(const py::object& receiver) {
  const OneThread one = alone();
  auto* const into = reinterpret_cast<std::byte*>(py::detail::array_proxy(receiver.ptr())->data);
  const GilReleased released(!small_);
  if (!collective_->read_result(into)) throw InternalError("a call was given no result");
}

}  // namespace pyc
