// The CUDA driver. It is loaded at first use and never linked, so that a build with CUDA runs on machines without it.
#pragma once

#include <string>

#include "memory/cuda/driver_api.h"
#include "memory/executor.h"

namespace pyc::cuda {

/// A failed call of the driver. The text has the driver's name and explanation of the error.
class DriverError : public DeviceError {
 public:
  DriverError(CUresult code, const std::string& text) : DeviceError(text), code_(code) {}
  CUresult code() const { return code_; }

 private:
  CUresult code_;
};

/// Throws DriverError if `call` failed. `advice` follows the driver's text.
void check(const DriverApi& driver, CUresult result, const char* call, const char* advice = "");

/// Calls driver.cuNAME(...) and checks the result.
#define PYC_CUDA(driver, name, ...) ::pyc::cuda::check(driver, (driver).name(__VA_ARGS__), #name)

struct DriverFinding {
  const DriverApi* driver = nullptr;
  std::string reason;  ///< empty if there is a driver
};

DriverFinding load_driver(const char* library, DriverApi& api);

/// The driver of this machine, loaded once.
const DriverFinding& system_driver();

/// For example 13000 for CUDA 13.0.
int version_of(const DriverApi& driver);

}  // namespace pyc::cuda
