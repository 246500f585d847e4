// The device code: one kernel for each name, in a grid of any size.
#include "memory/cuda/kernels.cuh"

#define PYC_DEFINE(name, ...)                                                      \
  extern "C" __global__ void __launch_bounds__(pyc::cuda::kBlockThreads)           \
      pyc_##name(const __grid_constant__ pyc::cuda::KernelArguments arguments) {   \
    using namespace pyc::cuda;                                                     \
    using namespace pyc;                                                           \
    const std::size_t thread = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; \
    run<__VA_ARGS__>(arguments, thread, std::size_t{gridDim.x} * blockDim.x);      \
  }

PYC_CUDA_KERNELS(PYC_DEFINE)
