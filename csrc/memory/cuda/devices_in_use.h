// The devices that collectives are made on: those of this machine, or, in tests, those of a simulated driver.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "memory/cuda/availability.h"
#include "memory/cuda/driver_api.h"
#include "memory/executor.h"

namespace pyc::cuda {

/// Whether there are any.
Availability availability_in_use();

/// Of a device, always the same: its kernels are loaded once, and stay. std::runtime_error if it cannot be used.
std::shared_ptr<Executor> executor_in_use(int ordinal);

/// Which device an address is of; nothing if it is of none.
std::optional<int> device_of(const std::byte* data);

/// Tests only: from now on these, and nothing is kept of those before; null: those of the machine. `image`: what its
/// modules are loaded from.
void use_driver(const DriverApi* driver, const void* image);

}  // namespace pyc::cuda
