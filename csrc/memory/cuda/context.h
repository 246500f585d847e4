// The primary context of a device, with its kernels.
#pragma once

#include <utility>

#include "core/types.h"
#include "memory/cuda/capture.h"
#include "memory/cuda/driver.h"

namespace pyc::cuda {

class Context {
 public:
  Context(const DriverApi& driver, int ordinal, const void* image);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const DriverApi& driver() const { return driver_; }
  CUdevice device() const { return device_; }
  unsigned multiprocessors() const { return multiprocessors_; }
  int stream_priority() const { return stream_priority_; }  ///< the highest

  // Null if there is no such kernel.
  CUfunction fold(ReduceOp op, DataType type, bool divides) const {
    return fold_[divides ? 1 : 0][static_cast<std::size_t>(op)][static_cast<std::size_t>(type)];
  }
  CUfunction load(DataType type) const { return load_[static_cast<std::size_t>(type)]; }
  CUfunction store(DataType type) const { return store_[static_cast<std::size_t>(type)]; }
  CUfunction weighted_sum(DataType type) const { return weighted_sum_[static_cast<std::size_t>(type)]; }

  /// Makes the context current on the calling thread, and restores the previous one, which may be the caller's.
  class Current {
   public:
    explicit Current(const Context& context) : driver_(context.driver_), beside_captures_(driver_) {
      PYC_CUDA(driver_, cuCtxPushCurrent_v2, context.context_);
    }
    ~Current() {
      CUcontext popped = nullptr;
      driver_.cuCtxPopCurrent_v2(&popped);
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const DriverApi& driver_;
    BesideCaptures beside_captures_;
  };

  /// Runs a cleanup in this context. It ignores errors: earlier work has reported them, or the process is ending.
  template <class Action>
  void end(Action action) const noexcept {
    try {
      const Current current(*this);
      action();
    } catch (const DriverError&) {  // NOLINT(bugprone-empty-catch)
    }
  }

 private:
  void prepare(const void* image);
  CUfunction kernel(const std::string& name) const;

  const DriverApi& driver_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  unsigned multiprocessors_ = 1;
  int stream_priority_ = 0;
  CUfunction fold_[2][kReduceOps][kDataTypes] = {};
  CUfunction load_[kDataTypes] = {};
  CUfunction store_[kDataTypes] = {};
  CUfunction weighted_sum_[kDataTypes] = {};
};

}  // namespace pyc::cuda
