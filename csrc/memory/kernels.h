// The inner loops of host memory, built once per instruction set. The build is chosen at run time.
#pragma once

#include <cstddef>

#include "core/types.h"

namespace pyc {

/// The loops for one element type. Pointers need no alignment; two ranges are equal or disjoint. `reduce`, `add` and
/// `divide` work on the accumulator type.
struct TypeKernels {
  using Loop = void (*)(std::byte* into, const std::byte* from, std::size_t count);
  using DividingLoop = void (*)(std::byte* into, const std::byte* from, std::size_t count, std::size_t divisor);

  Loop reduce[kReduceOps];  ///< By ReduceOp: into = into op from. Null if the operation is not defined.
  DividingLoop add;         ///< into = into + from / divisor, 1 <= divisor < 2^31.
  DividingLoop divide;      ///< into = from / divisor, 1 <= divisor < 2^31.
  Loop widen;               ///< To a wider accumulator type (float32, int64); null if there is none.
  Loop narrow;              ///< Back to the element type; integers wrap around.
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
