// A partial allreduce as Python holds it: what is contributed is checked, one thread is let in at a time, and others
// run Python while it waits.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bindings/bindings.h"
#include "schedule/schedule.h"

namespace pyc {

py::dict statistics_of(const PartialAllreduce& collective);

/// Once per module, before the first result.
void define_result_memory();

class BoundPartialAllreduce {
 public:
  /// Making a board is collective and takes at most `timeout` seconds.
  BoundPartialAllreduce(std::shared_ptr<Engine> engine, const Nodes& nodes, Seconds timeout,
                        PartialAllreduceOptions options, py::dtype dtype, std::vector<py::ssize_t> shape,
                        py::object convert, py::object writable);

  /// Of one that was made on devices: `contribute_when_made` and `with_result` instead of `contribute` and `result`.
  BoundPartialAllreduce(std::shared_ptr<Engine> engine, std::shared_ptr<PartialAllreduce> collective);

  /// `data`: an array of exactly the collective's shape and type, or what `convert` makes bytes of.
  std::shared_ptr<Call> contribute(PyObject* data, Seconds limit);
  /// Of one on devices: contributes what is there when `producers` have made it.
  std::shared_ptr<Call> contribute_when_made(const std::byte* data, DeviceHandover::Producers producers);
  /// Whether the call is late. Of one on devices that is known when it is handed over, which is waited for.
  bool is_late(const Call& call);
  bool test(Call& call);
  /// The limit of a call that was given `timeout`; None: the communicator's default.
  Seconds limit_from(PyObject* timeout) const { return timeout == Py_None ? default_limit_ : timeout_from(timeout); }
  /// As `timeout` of a call; None: no limit.
  void set_default_timeout(py::handle timeout);
  Seconds default_limit() const { return default_limit_; }
  /// Afterwards `call.info` is what the application is told.
  void wait(Call& call, Seconds limit);
  void start_flush();
  void close();
  RoundInfo flush(Seconds limit);
  /// Whether this thread has contributed since the last flush.
  bool has_contributed() const { return contributor_ == std::this_thread::get_id(); }
  /// Discards what waits and leaves for good, also where the engine has failed: nobody could be given anything then.
  /// The number of contributions discarded.
  std::size_t abort();
  /// Calls use(result), without the GIL.
  void with_result(const std::function<void(std::shared_ptr<const std::byte>)>& use);
  /// New reference to a read-only array over the result's memory.
  PyObject* result();
  /// Array that the result is written to. `out`: a writable array of the collective's shape and type, or what
  /// `writable` makes one of; to be called before anything is handed over.
  py::object receiver(PyObject* out) const;
  void write_result(const py::object& receiver);

  bool in_own_process() const { return engine_->is_in_own_process(); }
  const Schedule* schedule() const { return collective_->schedule(); }
  PartialAllreduce& operator*() { return *collective_; }

 private:
  class ExclusiveUse;

  bool is_plain(PyObject* data) const;
  std::shared_ptr<Call> hand_over(const void* data, Seconds limit);
  bool ends_at_once(const Call& call) const;
  void finish_handing_over(Seconds limit);

  const PyTypeObject* array_type_;
  py::dtype dtype_;
  std::vector<py::ssize_t> shape_;
  std::size_t bytes_;
  bool small_;  // looking at a round that has completed takes no longer than letting others run Python
  bool brief_;  // nor does handing data over
  Seconds default_limit_ = -1;
  std::atomic_flag in_use_;
  std::atomic<std::thread::id> contributor_;  // since the last flush
  std::shared_ptr<PartialAllreduce> collective_;
  py::object convert_;
  py::object writable_;
  std::shared_ptr<Engine> engine_;
};

}  // namespace pyc
