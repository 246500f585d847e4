// Whether this process can use a CUDA device, and if not, why.
#pragma once

#include <string>
#include <vector>

#include "memory/cuda/device_description.h"
#include "memory/cuda/driver.h"

namespace pyc::cuda {

struct Availability {
  std::string reason;       ///< why not; empty if devices can be used
  bool has_failed = false;  ///< that is an error of a device, or of a driver that is there
  int driver_version = 0;
  std::string kernels;  ///< what a device loads them from
  std::vector<DeviceDescription> devices;
};

/// With this driver.
Availability availability(const DriverFinding& finding);

}  // namespace pyc::cuda
