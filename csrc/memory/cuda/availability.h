// Whether this process can use a CUDA device and, if not, the reason.
#pragma once

#include <string>
#include <vector>

#include "memory/cuda/device_description.h"
#include "memory/cuda/driver.h"

namespace pyc::cuda {

struct Availability {
  std::string reason;       ///< empty if devices can be used
  bool has_failed = false;  ///< the reason is an error of a device or of an existing driver
  int driver_version = 0;
  std::string kernels;  ///< the form in which devices load them
  std::vector<DeviceDescription> devices;
};

Availability availability(const DriverFinding& finding);

}  // namespace pyc::cuda
