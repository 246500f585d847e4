// What a device loads its kernels from: PTX, made of kernels.cu by tools/device_code.py, which the driver compiles for
// the device at hand.
#pragma once

#include <memory>
#include <string_view>

#include "memory/cuda/driver.h"
#include "memory/executor.h"

namespace pyc::cuda {

/// The PTX; a NUL follows it.
std::string_view device_code();

/// Who compiles it, and for which devices.
inline constexpr char kOriginOfDeviceCode[] = "as PTX, which the driver compiles: for compute capability 7.5 and later";

/// As make_executor, with that code. std::runtime_error if the driver does not take it.
std::unique_ptr<Executor> make_executor_with_code(const DriverApi& driver, int ordinal);

}  // namespace pyc::cuda
