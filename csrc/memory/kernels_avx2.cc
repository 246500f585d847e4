#if defined(__x86_64__)
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "memory/kernels.h"

// Only the code below may use these instructions: inline functions of the headers above must run on any processor.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,f16c")
#endif

#define PYC_KERNELS_F16C
#include "memory/kernels.inc"

#if defined(__clang__)
#pragma clang attribute pop
#endif

const pyc::Kernels pyc::kAvx2Kernels = pyc::all_kernels();
#endif
