// Python objects that C++ keeps, and may drop on any thread and under any lock.
#pragma once

#include <memory>

#include "bindings/bindings.h"

namespace pyc {

/// Keeps `object`. The last reference may be dropped without the GIL and under the engine's locks. Python then drops
/// the object later, on its main thread, because `__del__` may call this library.
std::shared_ptr<py::object> kept(py::object object);

}  // namespace pyc
