#include "bindings/c_functions.h"

#include "bindings/calls.h"
#include "c_api/errors.h"
#include "core/error.h"

namespace pyc {

void interrupt_c_call() {
  const GilHeld gil;
  if (never_unwound([] { return PyErr_CheckSignals(); }) != 0) throw Interrupted("a signal handler of Python raised");
}

py::capsule capsule_of(pyc_collective* handle) { return py::capsule(handle, "pycollectives.collective"); }

void bind_c_functions(py::module_& m) {
  m.attr("_C_API") = py::capsule(&pyc_linked_api, "pycollectives._core._C_API");
  Definitions(m).function("_raise_c_error", "", [] {
    const std::exception_ptr error = last_error();
    if (!error) throw InternalError("no call from C has failed in this thread");
    std::rethrow_exception(error);
  });
}

}  // namespace pyc
