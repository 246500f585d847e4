// The inner loops of the host memory, built once per instruction set; which build runs is chosen at run time.
#pragma once

#include <cstddef>

#include "core/types.h"

namespace pyc {

/// The loops for one element type. No pointer need be aligned; two ranges are equal or disjoint.
struct TypeKernels {
  using Loop = void (*)(std::byte* into, const std::byte* from, std::size_t count);
  using DividingLoop = void (*)(std::byte* into, const std::byte* from, std::size_t count, std::size_t divisor);

  Loop reduce[kReduceOps];  ///< By ReduceOp: into = into op from. Accumulator type, as in `add` and `divide`. Null
                            ///< where the operation is not defined.
  DividingLoop add;         ///< into = into + from / divisor, 1 <= divisor < 2^31.
  DividingLoop divide;      ///< into = from / divisor, 1 <= divisor < 2^31.
  Loop widen;               ///< To the accumulator type that is wider: float32, int64; null where there is none.
  Loop narrow;              ///< And back; integers wrap around.
};

/// The loops of one instruction set. Every instruction set gives the same bits.
struct Kernels {
  TypeKernels of[kDataTypes];  ///< By DataType.

  const TypeKernels& operator[](DataType type) const { return of[static_cast<std::size_t>(type)]; }
};

extern const Kernels kBaselineKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;    // needs avx2 and f16c
extern const Kernels kAvx512Kernels;  // needs avx512f, avx512bw, avx512dq and avx512vl
#endif

}  // namespace pyc
