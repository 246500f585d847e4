// The executor of a CUDA device: memory of the device, work queued on its streams, nothing that waits.
#pragma once

#include <memory>

#include "memory/cuda/driver.h"
#include "memory/executor.h"

namespace pyc::cuda {

/// Makes the primary context of the device, which the caller's libraries use too, and loads the kernels into it.
/// DriverError if that fails. `image`: device_code(), or what a simulated driver takes for one.
std::unique_ptr<Executor> make_executor(const DriverApi& driver, int ordinal, const void* image);

}  // namespace pyc::cuda
