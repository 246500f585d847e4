// The CUDA devices that collectives are made on. Without CUDA in the build there are none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "memory/executor.h"

namespace pyc {

/// std::runtime_error, with the reason, if the device cannot be used.
std::shared_ptr<Executor> executor_in_use(int ordinal);

/// The memory at an address, as Python has it.
inline std::byte* memory_at(std::uintptr_t address) {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

/// The device that an address is of; nothing if it is of none.
std::optional<int> device_of(std::uintptr_t data);

}  // namespace pyc
