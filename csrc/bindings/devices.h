// The CUDA devices of collectives. A build without CUDA has none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "memory/executor.h"

namespace pyc {

/// Throws std::runtime_error with the reason if the device is unusable.
std::shared_ptr<Executor> executor_in_use(int ordinal);

/// The memory at an address from Python.
inline std::byte* memory_at(std::uintptr_t address) {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

/// The device of an address; nullopt if it is not on a device.
std::optional<int> device_of(std::uintptr_t data);

}  // namespace pyc
