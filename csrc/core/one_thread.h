// For objects that one thread at a time may use.
#pragma once

#include <atomic>
#include <stdexcept>
#include <string>

namespace pyc {

/// Marks a call of an object while it lives, and refuses a second thread.
class OneThread {
 public:
  using Refuse = void (*)(const std::string& name);  ///< throws

  OneThread(std::atomic_flag& flag, const std::string& name, Refuse refuse = &refuse_call) : flag_(flag) {
    if (flag_.test_and_set(std::memory_order_acquire)) refuse(name);
  }
  ~OneThread() { flag_.clear(std::memory_order_release); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  [[noreturn]] static void refuse_call(const std::string& name) {
    throw std::runtime_error("'" + name + "': called while another thread is in a call of it; one thread at a time");
  }

  std::atomic_flag& flag_;
};

}  // namespace pyc
