// The devices for collectives: the machine's or, in tests, a simulated driver's.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "memory/cuda/availability.h"
#include "memory/cuda/driver_api.h"
#include "memory/executor.h"

namespace pyc::cuda {

Availability availability_in_use();

/// The same executor for each call with one device: kernels are loaded once. std::runtime_error if it is unusable.
std::shared_ptr<Executor> executor_in_use(int ordinal);

/// The device of an address; nullopt if it is not on a device.
std::optional<int> device_of(const std::byte* data);

/// Tests only: replaces the driver and drops all executors. Null: the machine's driver. `image`: its modules' code.
void use_driver(const DriverApi* driver, const void* image);

}  // namespace pyc::cuda
