// A partial allreduce for Python: checks contributed data, admits one thread at a time, releases the GIL during waits.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/bound.h"
#include "bindings/direct_calls.h"
#include "c_api/allreduce_handle.h"
#include "schedule/schedule.h"

namespace pyc {

py::dict statistics_of(const PartialAllreduce& collective);

/// Call it once per module, before the first result.
void define_result_memory();

class BoundPartialAllreduce {
 public:
  /// Creating a board is collective and takes at most `timeout` seconds.
  BoundPartialAllreduce(std::shared_ptr<Engine> engine, const Nodes& nodes, Seconds timeout,
                        PartialAllreduceOptions options, py::dtype dtype, std::vector<py::ssize_t> shape,
                        py::object convert, py::object writable);

  /// For a collective on devices. Use `contribute_when_made` and `with_result`, not `contribute` and `result`.
  BoundPartialAllreduce(std::shared_ptr<Engine> engine, std::shared_ptr<PartialAllreduce> collective);

  /// `data`: an array of exactly the collective's shape and type, or an object that `convert` turns into bytes.
  std::shared_ptr<Call> contribute(PyObject* data, Seconds limit);
  /// See PartialAllreduce.
  void deposit(PyObject* data);
  void receive_pending();
  /// For a collective on devices. Contributes the data after `producers` have made it.
  std::shared_ptr<Call> contribute_when_made(const std::byte* data, DeviceHandover::Producers producers);
  /// Whether the call is late. On devices this is known only after the handover, so the function waits for it.
  bool is_late(const Call& call);
  bool test(Call& call);
  /// The time limit of a call with this `timeout`; None: the communicator's default.
  Seconds limit_from(PyObject* timeout) const { return timeout == Py_None ? default_limit_ : timeout_from(timeout); }
  void set_default_timeout(py::handle timeout);
  Seconds default_limit() const { return default_limit_; }
  /// Afterwards `call.info` describes the round.
  void wait(Call& call, Seconds limit);
  void start_flush();
  /// On a device, it may be called again.
  void close();
  RoundInfo flush(Seconds limit);
  /// Whether this thread has contributed since the last flush.
  bool has_contributed() const { return contributor_->is_this_thread(); }
  /// Discards pending data and leaves, even after the engine has failed, when no data can be delivered. Returns the
  /// number of discarded contributions.
  std::size_t abort();
  /// Calls use(result) without the GIL.
  void with_result(const std::function<void(std::shared_ptr<const std::byte>)>& use);
  /// Returns a new reference to a read-only array over the result's memory.
  PyObject* result();
  /// Returns the array to write the result to. `out`: a writable array of the collective's shape and type, or an object
  /// that `writable` turns into one. Call it before the handover.
  py::object receiver(PyObject* out) const;
  void write_result(const py::object& receiver);

  /// The handle of calls from C, which lives as long as this object.
  pyc_collective* c_handle(Seconds default_limit);

  /// See direct_calls.h.
  DirectCalls& direct_calls() { return direct_calls_; }
  /// Keeps a copy of the newest contribution for Python. `kept` has the rest.
  void keep(PyObject* data, DirectCalls::Kept kept);

  Seconds now() const { return engine_->transport().now(); }
  bool in_own_process() const { return engine_->is_in_own_process(); }
  const Schedule* schedule() const { return collective_->schedule(); }
  PartialAllreduce& operator*() { return *collective_; }

 protected:
  Engine& engine() { return *engine_; }
  std::size_t bytes() const { return bytes_; }

 private:
  OneThread alone();
  bool is_plain(PyObject* data) const;
  std::shared_ptr<Call> hand_over(const void* data, Seconds limit);
  bool ends_at_once(const Call& call) const;
  void finish_handing_over(Seconds limit);

  const PyTypeObject* array_type_;
  py::dtype dtype_;
  std::vector<py::ssize_t> shape_;
  std::size_t bytes_;
  bool small_;  // looking at a completed round is faster than releasing the GIL
  bool brief_;  // so is handing data over
  Seconds default_limit_ = -1;
  std::atomic_flag in_use_;
  std::shared_ptr<PartialAllreduce> collective_;
  std::unique_ptr<Contributor> contributor_;  // made after the collective
  std::unique_ptr<pyc_collective> handle_;    // of calls from C
  py::object convert_;
  py::object writable_;
  std::shared_ptr<Engine> engine_;
  DirectCalls direct_calls_;
};

}  // namespace pyc
