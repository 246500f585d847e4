// The CUDA devices that collectives are made on. Without CUDA in the build there are none.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "memory/executor.h"

namespace pyc {

/// std::runtime_error, with the reason, if the device cannot be used.
std::shared_ptr<Executor> executor_in_use(int ordinal);

/// The device that an address is of; nothing if it is of none.
std::optional<int> device_of(std::uintptr_t data);

}  // namespace pyc
