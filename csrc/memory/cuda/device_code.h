// The device code: PTX that tools/device_code.py makes from kernels.cu, and that the driver compiles for its device.
#pragma once

#include <memory>
#include <string_view>

#include "memory/cuda/driver.h"
#include "memory/executor.h"

namespace pyc::cuda {

/// The PTX, followed by a NUL.
std::string_view device_code();

/// For users: its compiler and its devices.
inline constexpr char kOriginOfDeviceCode[] = "as PTX, which the driver compiles: for compute capability 7.5 and later";

/// Like make_executor, with that code. Throws std::runtime_error if the driver rejects it.
std::unique_ptr<Executor> make_executor_with_code(const DriverApi& driver, int ordinal);

}  // namespace pyc::cuda
