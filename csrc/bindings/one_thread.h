// For objects that one thread at a time may use.
#pragma once

#include <atomic>
#include <stdexcept>
#include <string>

#include "bindings/bindings.h"

namespace pyc {

/// Marks a call of an object while it lives, and refuses a second thread.
class OneThread {
 public:
  OneThread(std::atomic_flag& flag, const std::string& name) : flag_(flag) {
    if (!flag_.test_and_set(std::memory_order_acquire)) return;
    throw std::runtime_error("'" + name + "': called while another thread is in a call of it; one thread at a time");
  }
  ~OneThread() { flag_.clear(std::memory_order_release); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  std::atomic_flag& flag_;
};

inline py::buffer_info requested(const py::buffer& values, bool writable, const std::string& name, std::size_t count) {
  py::buffer_info memory = values.request(writable);
  if (static_cast<std::size_t>(memory.size) == count) return memory;
  throw std::invalid_argument("'" + name + "': expected " + std::to_string(count) + " elements, got " +
                              std::to_string(memory.size));
}

}  // namespace pyc
