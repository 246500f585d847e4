// What a driver says of its devices, without making a context on them: what `info` shows.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "memory/cuda/driver.h"

namespace pyc::cuda {

struct DeviceDescription {
  std::string name;
  int major = 0;  ///< compute capability
  int minor = 0;
  std::size_t bytes = 0;
  std::string pci_bus_id;              ///< which device it is, whatever its number: CUDA_VISIBLE_DEVICES renumbers
  std::string why_not_shared;          ///< why its memory cannot be mapped by other processes (CUDA IPC); empty: it can
  bool one_process_at_a_time = false;  ///< compute mode EXCLUSIVE_PROCESS: ranks need MPS to share it
  std::vector<bool> reaches;           ///< by number: whether it can access that device's memory
};

std::vector<DeviceDescription> describe_devices(const DriverApi& driver);

}  // namespace pyc::cuda
