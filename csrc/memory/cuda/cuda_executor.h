// The executor of a CUDA device: device memory, and work queued on its streams.
#pragma once

#include <memory>

#include "memory/cuda/driver.h"
#include "memory/executor.h"

namespace pyc::cuda {

/// Creates the primary context of the device, which the caller's libraries share, and loads the kernels into it. Throws
/// DriverError. `image`: device_code(), or the image of a simulated driver.
std::unique_ptr<Executor> make_executor(const DriverApi& driver, int ordinal, const void* image);

}  // namespace pyc::cuda
