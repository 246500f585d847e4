// The text of kernels.cu and of what it includes, for a compiler at run time.
#pragma once

#include <span>

namespace pyc::cuda {

struct KernelSource {
  const char* name;  ///< as it is included
  const char* text;
};

/// First kernels.cu, then the headers; those of the standard library are as much of it as kernels need.
std::span<const KernelSource> kernel_sources();

}  // namespace pyc::cuda
