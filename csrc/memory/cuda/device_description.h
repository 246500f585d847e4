// A driver's description of its devices, without contexts on them, for `info`.
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
  std::string pci_bus_id;              ///< identifies the device, because CUDA_VISIBLE_DEVICES renumbers devices
  std::string why_not_shared;          ///< why other processes cannot map its memory (CUDA IPC); empty if they can
  bool one_process_at_a_time = false;  ///< compute mode EXCLUSIVE_PROCESS: ranks need MPS to share it
  std::vector<bool> reaches;           ///< by device number: whether this device can access its memory
};

std::vector<DeviceDescription> describe_devices(const DriverApi& driver);

}  // namespace pyc::cuda
