// For objects that one thread at a time may use, with arrays of a fixed count.
#pragma once

#include <stdexcept>
#include <string>

#include "bindings/bindings.h"
#include "core/one_thread.h"

namespace pyc {

inline py::buffer_info requested(const py::buffer& values, bool writable, const std::string& name, std::size_t count) {
  py::buffer_info memory = values.request(writable);
  if (static_cast<std::size_t>(memory.size) == count) return memory;
  throw std::invalid_argument("'" + name + "': expected " + std::to_string(count) + " elements, got " +
                              std::to_string(memory.size));
}

}  // namespace pyc
