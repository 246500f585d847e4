// The CUDA driver: loaded when it is first asked for, never linked, so that a build with CUDA runs where there is none.
#pragma once

#include <string>

#include "memory/cuda/driver_api.h"
#include "memory/executor.h"

namespace pyc::cuda {

/// A call of the driver that failed; the text has the driver's name of the error, and its explanation.
class DriverError : public DeviceError {
 public:
  DriverError(CUresult code, const std::string& text) : DeviceError(text), code_(code) {}
  CUresult code() const { return code_; }

 private:
  CUresult code_;
};

/// Throws DriverError if a call failed; `call` is what it was, `advice` follows the driver's text.
void check(const DriverApi& driver, CUresult result, const char* call, const char* advice = "");

/// driver.cuNAME(...), checked.
#define PYC_CUDA(driver, name, ...) ::pyc::cuda::check(driver, (driver).name(__VA_ARGS__), #name)

/// A driver, or why there is none.
struct DriverFinding {
  const DriverApi* driver = nullptr;
  std::string reason;  ///< empty if there is one
};

/// Loads the library of that name and initialises it.
DriverFinding load_driver(const char* library, DriverApi& api);

/// That of this machine; looked for once.
const DriverFinding& system_driver();

/// As in 13000 for CUDA 13.0.
int version_of(const DriverApi& driver);

}  // namespace pyc::cuda
