// Tests only. Compiled without contraction to fused operations, like the device code.
#include "memory/cuda/host_kernels.h"

#include "memory/cuda/kernels.cuh"

namespace pyc::cuda {
namespace {

template <class Body>
constexpr KernelDescription description_of() {
  return {run<Body>, sizeof(typename Body::In), sizeof(typename Body::Out)};
}

}  // namespace

KernelDescription host_kernel(std::string_view name) {
#define PYC_DESCRIBE(kernel, ...) \
  if (name == "pyc_" #kernel) return description_of<__VA_ARGS__>();
  PYC_CUDA_KERNELS(PYC_DESCRIBE)
#undef PYC_DESCRIBE
  return {};
}

}  // namespace pyc::cuda
