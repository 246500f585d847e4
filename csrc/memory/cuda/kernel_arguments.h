// What every kernel is given: one struct by value, so that a launch is the same for all of them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pyc::cuda {

/// The most inputs of one kernel, and the most outputs: a kernel may have 4096 bytes of arguments.
inline constexpr std::uint32_t kMostOperands = 64;

struct KernelArguments {
  const std::byte* in[kMostOperands];
  std::byte* out[kMostOperands];
  double factor[kMostOperands];  ///< of each input, for weighted sums
  std::uint64_t count;           ///< elements of each operand
  std::uint64_t divisor;         ///< of a total; 1: none
  std::uint32_t inputs;
  std::uint32_t outputs;
  std::uint32_t aligned;  ///< whether all operands begin at multiples of 16 bytes
};
static_assert(sizeof(KernelArguments) <= 4096);

/// Threads of a block, in every launch.
inline constexpr unsigned kBlockThreads = 256;

}  // namespace pyc::cuda
