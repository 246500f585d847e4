// Handles of Python's objects for calls from C (pycollectives.h).
#pragma once

#include "bindings/bindings.h"
#include "c_api/handle.h"

namespace pyc {

/// Lets Ctrl-C end a call from C: runs signal handlers and throws Interrupted, with Python's exception set.
void interrupt_c_call();

/// Does not own the handle.
py::capsule capsule_of(pyc_collective* handle);

}  // namespace pyc
