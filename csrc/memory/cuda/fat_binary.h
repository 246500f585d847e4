// The device code that nvcc made of kernels.cu, in this library.
#pragma once

#include <cstddef>
#include <span>

namespace pyc::cuda {

/// Empty in a build without nvcc.
std::span<const std::byte> fat_binary();

/// The compute capabilities that it is for; empty if it is.
const char* fat_binary_architectures();
/// The version of nvcc that made it, as in 13.0: that of the oldest driver that is sure to take it; empty if there is
/// none.
const char* fat_binary_cuda();

/// Why it is empty.
const char* why_no_fat_binary();

}  // namespace pyc::cuda
