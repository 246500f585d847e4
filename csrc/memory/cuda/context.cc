#include "memory/cuda/context.h"

#include <string>

#include "memory/cuda/kernel_names.h"

namespace pyc::cuda {

Context::Context(const DriverApi& driver, int ordinal, const void* image) : driver_(driver) {
  int multiprocessors = 0;
  PYC_CUDA(driver_, cuDeviceGet, &device_, ordinal);
  PYC_CUDA(driver_, cuDeviceGetAttribute, &multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_);
  multiprocessors_ = static_cast<unsigned>(multiprocessors);
  PYC_CUDA(driver_, cuDevicePrimaryCtxRetain, &context_, device_);
  try {
    load_kernels(image);
  } catch (...) {
    driver_.cuDevicePrimaryCtxRelease_v2(device_);
    throw;
  }
}

Context::~Context() {  // at the end of a process the driver may be gone: what fails here is nobody's any more
  if (driver_.cuCtxPushCurrent_v2(context_) == CUDA_SUCCESS) {
    CUcontext popped = nullptr;
    driver_.cuModuleUnload(module_);
    driver_.cuCtxPopCurrent_v2(&popped);
  }
  driver_.cuDevicePrimaryCtxRelease_v2(device_);
}

void Context::load_kernels(const void* image) {
  const Current current(*this);
  PYC_CUDA(driver_, cuModuleLoadData, &module_, image);
  try {
    for (int t = 0; t < kDataTypes; ++t) {
      const auto type = static_cast<DataType>(t);
      for (int o = 0; o < kReduceOps; ++o) {
        const auto op = static_cast<ReduceOp>(o);
        fold_[0][o][t] = kernel(fold_kernel(op, type, false));
        fold_[1][o][t] = kernel(fold_kernel(op, type, true));
      }
      load_[t] = kernel(load_kernel(type));
      store_[t] = kernel(store_kernel(type));
      weighted_sum_[t] = kernel(weighted_sum_kernel(type));
    }
  } catch (...) {
    driver_.cuModuleUnload(module_);
    throw;
  }
}

CUfunction Context::kernel(const std::string& name) const {
  CUfunction function = nullptr;
  if (!name.empty()) PYC_CUDA(driver_, cuModuleGetFunction, &function, module_, name.c_str());
  return function;
}

}  // namespace pyc::cuda
