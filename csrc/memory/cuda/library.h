// Functions of a library that is loaded at first use and never linked.
#pragma once

#include <dlfcn.h>

#include <string>

namespace pyc::cuda {

/// Never closes the library, because such libraries have their own threads. Null, with a `reason`, on failure.
inline void* open_library(const char* library, std::string& reason) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return handle;
  const char* const error = dlerror();
  reason = error != nullptr ? error : library;
  return nullptr;
}

template <class Function>
bool find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace pyc::cuda
