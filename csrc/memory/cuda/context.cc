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
    prepare(image);
  } catch (...) {
    driver_.cuDevicePrimaryCtxRelease_v2(device_);
    throw;
  }
}

Context::~Context() {
  end([&] { driver_.cuModuleUnload(module_); });
  driver_.cuDevicePrimaryCtxRelease_v2(device_);
}

void Context::prepare(const void* image) {
  const Current current(*this);
  int least = 0;
  PYC_CUDA(driver_, cuCtxGetStreamPriorityRange, &least, &stream_priority_);
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
  if (name.empty()) return function;
  PYC_CUDA(driver_, cuModuleGetFunction, &function, module_, name.c_str());
  // Otherwise the first launch loads it, which may wait for work of other libraries.
  if (driver_.cuFuncLoad != nullptr) PYC_CUDA(driver_, cuFuncLoad, function);
  return function;
}

}  // namespace pyc::cuda
