// Releasing and taking the GIL, also during the finalization of the interpreter.
//
// Before Python 3.14, a thread that takes the GIL of an interpreter that is being finalized is unwound by pthread_exit.
// If a destructor of a C++ frame ran then, it would call std::terminate. No thread waits for such a daemon thread, so
// it sleeps here until the process ends, as Python 3.14 does itself.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

#include "core/lock_order.h"

namespace pyc {

/// Calls `action`, which calls Python or takes the GIL, and returns its result. The unwinder passes a null reference,
/// which sanitizers would report.
template <class Action>
__attribute__((no_sanitize("null"))) auto never_unwound(Action action) {
  try {
    return action();
  } catch (abi::__forced_unwind&) {
    for (;;) pause();
  }
}

/// Lets other threads run Python. If `wanted` is false it does nothing, for short calls, where releasing costs more.
class GilReleased {
 public:
  explicit GilReleased(bool wanted = true) : state_(wanted ? PyEval_SaveThread() : nullptr) {}
  ~GilReleased() {
    if (state_ == nullptr) return;
    check_none_held();
    never_unwound([this] { PyEval_RestoreThread(state_); });
  }
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* state_;
};

/// Calls `action` while other threads may run Python.
template <class Action>
auto without_gil(Action action) {
  const GilReleased released;
  return action();
}

/// A deleter without the GIL, for any thread: the destructor may wait for a thread that needs Python.
template <class Owned>
struct DeletedWithoutGil {
  void operator()(Owned* owned) const {
    const GilReleased released(PyGILState_Check() != 0);
    delete owned;
  }
};

/// Lets this thread, which need not be Python's, run Python.
class GilHeld {
 public:
  GilHeld()
      : state_(never_unwound([] {
          check_none_held();
          return PyGILState_Ensure();
        })) {}
  ~GilHeld() { PyGILState_Release(state_); }
  GilHeld(const GilHeld&) = delete;
  GilHeld& operator=(const GilHeld&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace pyc
