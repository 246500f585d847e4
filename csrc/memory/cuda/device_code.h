// What a device loads its kernels from: what nvcc made of them when the library was built, or, in a build without nvcc,
// what NVRTC makes of the same text now.
#pragma once

#include <string>

#include "memory/cuda/driver.h"

namespace pyc::cuda {

class DeviceCode {
 public:
  /// For a device. std::runtime_error if there is no such code.
  DeviceCode(const DriverApi& driver, int ordinal);

  const void* image() const;  ///< as long as this object is there

 private:
  std::string compiled_;  // empty: what the build has
};

/// Why no device can have code; empty if one can.
std::string why_no_device_code();

/// Who compiles it, and for which devices; empty if nobody does.
std::string origin_of_device_code();

}  // namespace pyc::cuda
