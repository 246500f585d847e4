// The status of a call from C, and the last error of a thread.
#pragma once

#include <pycollectives.h>

#include <exception>
#include <stdexcept>

#include "core/hot.h"

namespace pyc {

/// A handler that `Engine::Interrupt` called has ended the wait.
struct Interrupted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Notes the current exception as this thread's last error; returns its status.
pyc_status note_error() noexcept;
/// Null if there is none.
std::exception_ptr last_error();
const char* last_error_text();
std::size_t last_failed_ranks(std::int32_t* ranks, std::size_t most);

/// Returns the status of `action`.
template <class Action>
PYC_HOT pyc_status guarded_call(Action action) noexcept {
  try {
    action();
    return PYC_OK;
  } catch (...) {
    return note_error();
  }
}

}  // namespace pyc
