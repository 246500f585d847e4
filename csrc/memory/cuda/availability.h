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
  std::string kernels;  ///< where they come from; empty: there are none
  std::vector<DeviceDescription> devices;
};

/// With this driver, in a build whose device code is missing for that reason (empty: it is there).
Availability availability(const DriverFinding& finding, const std::string& no_device_code);

}  // namespace pyc::cuda
