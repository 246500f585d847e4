// What a device loads its kernels from: what nvcc made of them when the library was built, or, where there is none that
// the driver takes, what NVRTC makes of the same text now.
#pragma once

#include <memory>
#include <string>

#include "memory/cuda/driver.h"
#include "memory/executor.h"

namespace pyc::cuda {

/// As make_executor, with that code. std::runtime_error if there is none that the driver takes.
std::unique_ptr<Executor> make_executor_with_code(const DriverApi& driver, int ordinal);

/// Why no device can have code; empty if one can.
std::string why_no_device_code();

/// Who compiles it, and for which devices; empty if nobody does.
std::string origin_of_device_code();

}  // namespace pyc::cuda
