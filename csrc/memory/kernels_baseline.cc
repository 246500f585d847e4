#include <cstddef>
#include <cstdint>

#include "memory/kernels.h"
#include "memory/kernels.inc"

const pyc::Kernels pyc::kBaselineKernels = pyc::all_kernels();
