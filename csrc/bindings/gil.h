// Giving Python's global lock away and taking it again, also while the interpreter ends.
//
// Before Python 3.14 a thread that takes the lock of an interpreter which is ending is unwound by pthread_exit, and no
// C++ between it and Python's frames may stand in the way: a destructor would call std::terminate. Such a thread is a
// daemon that nobody waits for, so it sleeps here until the process has ended, as since 3.14 in Python itself.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace pyc {

/// What `action` returns, which calls Python, or takes the lock.
template <class Action>
auto never_unwound(Action action) {
  try {
    return action();
  } catch (abi::__forced_unwind&) {
    for (;;) pause();
  }
}

/// Others may run Python meanwhile, unless `wanted` is false: for what ends at once, letting them costs more.
class GilReleased {
 public:
  explicit GilReleased(bool wanted = true) : state_(wanted ? PyEval_SaveThread() : nullptr) {}
  ~GilReleased() {
    if (state_ != nullptr) never_unwound([this] { PyEval_RestoreThread(state_); });
  }
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* state_;
};

/// Deletes what an object of Python owns without the lock, on any thread: what its end waits for may need Python.
template <class Owned>
struct DeletedWithoutGil {
  void operator()(Owned* owned) const {
    const GilReleased released(PyGILState_Check() != 0);
    delete owned;
  }
};

/// This thread, which need not be Python's, runs Python.
class GilHeld {
 public:
  GilHeld() : state_(never_unwound([] { return PyGILState_Ensure(); })) {}
  ~GilHeld() { PyGILState_Release(state_); }
  GilHeld(const GilHeld&) = delete;
  GilHeld& operator=(const GilHeld&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace pyc
