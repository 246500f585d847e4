// The device code that nvcc made of kernels.cu, in this library.
#pragma once

#include <cstddef>
#include <span>

namespace pyc::cuda {

/// Empty in a build without nvcc.
std::span<const std::byte> fat_binary();

/// The compute capabilities that it is for; empty if it is.
const char* fat_binary_architectures();

/// Why it is empty.
const char* why_no_fat_binary();

}  // namespace pyc::cuda
