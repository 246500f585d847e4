// The kernels as functions of the host: for tests, which have no device.
#pragma once

#include <cstddef>
#include <string_view>

#include "memory/cuda/kernel_arguments.h"

namespace pyc::cuda {

/// What one thread of a launch does.
using HostKernel = void (*)(const KernelArguments& arguments, std::size_t thread, std::size_t threads);

struct KernelDescription {
  HostKernel kernel = nullptr;
  std::size_t in_bytes = 0;  ///< of an element of an input
  std::size_t out_bytes = 0;
};

/// Without a kernel if there is none of that name.
KernelDescription host_kernel(std::string_view name);

}  // namespace pyc::cuda
