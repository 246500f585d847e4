#include "memory/cuda/availability.h"

namespace pyc::cuda {

Availability availability(const DriverFinding& finding, const std::string& no_device_code) {
  Availability found;
  found.reason = no_device_code.empty() ? finding.reason : no_device_code;
  if (finding.driver == nullptr) return found;
  try {
    found.driver_version = version_of(*finding.driver);
    found.devices = describe_devices(*finding.driver);
  } catch (const DriverError& error) {
    found.has_failed = found.reason.empty();
    if (found.has_failed) found.reason = error.what();
    return found;
  }
  if (found.reason.empty() && found.devices.empty()) found.reason = "the driver has no device";
  return found;
}

}  // namespace pyc::cuda
