// A background thread of the library. It blocks all signals except faults, so the application's threads receive them.
#pragma once

#include <pthread.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): sigset_t

#include <functional>
#include <thread>
#include <utility>

namespace pyc {

/// Throws std::system_error if no thread can be created. `name` has at most 15 characters.
inline std::thread background_thread(const char* name, std::function<void()> work) {
  sigset_t all;
  sigset_t usual;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &usual);  // the new thread inherits the mask
  try {
    std::thread thread(std::move(work));
    pthread_sigmask(SIG_SETMASK, &usual, nullptr);
    pthread_setname_np(thread.native_handle(), name);
    return thread;
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &usual, nullptr);
    throw;
  }
}

}  // namespace pyc
