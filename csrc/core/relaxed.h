// A number that one thread at a time writes and other threads may read at any time, without any ordering.
#pragma once

#include <atomic>

namespace pyc {

template <class T>
class Relaxed {
 public:
  Relaxed(T value = {}) : value_(value) {}  // NOLINT(google-explicit-constructor): it is a T
  operator T() const { return value_.load(std::memory_order_relaxed); }  // NOLINT(google-explicit-constructor)
  Relaxed& operator=(T value) {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }
  Relaxed& operator+=(T more) { return *this = *this + more; }
  Relaxed& operator++() { return *this += 1; }

 private:
  std::atomic<T> value_;
};

}  // namespace pyc
