#include "memory/cuda/availability.h"

namespace pyc::cuda {

Availability availability(const DriverFinding& finding) {
  Availability found;
  found.reason = finding.reason;
  if (finding.driver == nullptr) return found;
  try {
    found.driver_version = version_of(*finding.driver);
    found.devices = describe_devices(*finding.driver);
  } catch (const DriverError& error) {
    found.has_failed = true;
    found.reason = error.what();
    return found;
  }
  if (found.devices.empty()) found.reason = "the driver has no device";
  return found;
}

}  // namespace pyc::cuda
