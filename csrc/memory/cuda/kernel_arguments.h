// The argument of every kernel: one struct by value, so all launches are alike.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pyc::cuda {

/// Limit of the inputs of a kernel, and of its outputs: CUDA allows 4096 bytes of arguments.
inline constexpr std::uint32_t kMostOperands = 64;

struct KernelArguments {
  const std::byte* in[kMostOperands];
  std::byte* out[kMostOperands];
  double factor[kMostOperands];  ///< by input, for weighted sums
  std::uint64_t count;           ///< elements of each operand
  std::uint64_t divisor;         ///< of the total; 1 for none
  std::uint32_t inputs;
  std::uint32_t outputs;
  std::uint32_t aligned;  ///< all operands begin at multiples of 16 bytes
};
static_assert(sizeof(KernelArguments) <= 4096);

/// Threads per block, in every launch.
inline constexpr unsigned kBlockThreads = 256;

}  // namespace pyc::cuda
