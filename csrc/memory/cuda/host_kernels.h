// The kernels as host functions, for tests without a device.
#pragma once

#include <cstddef>
#include <string_view>

#include "memory/cuda/kernel_arguments.h"

namespace pyc::cuda {

/// The work of one thread of a launch.
using HostKernel = void (*)(const KernelArguments& arguments, std::size_t thread, std::size_t threads);

struct KernelDescription {
  HostKernel kernel = nullptr;
  std::size_t in_bytes = 0;  ///< of an input element
  std::size_t out_bytes = 0;
};

/// Without a kernel if the name is unknown.
KernelDescription host_kernel(std::string_view name);

}  // namespace pyc::cuda
