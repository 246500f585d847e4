// The functions of a library that is loaded when it is first asked for, and never linked.
#pragma once

#include <dlfcn.h>

#include <string>

namespace pyc::cuda {

/// Opens it for good: such libraries have threads of their own. Null if it cannot be; `reason` says why.
inline void* open_library(const char* library, std::string& reason) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return handle;
  const char* const error = dlerror();
  reason = error != nullptr ? error : library;
  return nullptr;
}

/// Whether it has one of that name.
template <class Function>
bool find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace pyc::cuda
