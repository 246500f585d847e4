#include "memory/cuda/driver.h"

#include "memory/cuda/library.h"

namespace pyc::cuda {
namespace {

std::string text_of(const DriverApi& driver, CUresult error) {
  const char* name = nullptr;
  const char* meaning = nullptr;
  if (driver.cuGetErrorName(error, &name) != CUDA_SUCCESS || name == nullptr) return "error " + std::to_string(error);
  std::string text = name;
  if (driver.cuGetErrorString(error, &meaning) == CUDA_SUCCESS && meaning != nullptr) {
    text += std::string(" (") + meaning + ")";
  }
  return text;
}

}  // namespace

void check(const DriverApi& driver, CUresult result, const char* call, const char* advice) {
  if (result == CUDA_SUCCESS) return;
  throw DriverError(result, std::string("CUDA: ") + call + ": " + text_of(driver, result) + advice);
}

DriverFinding load_driver(const char* library, DriverApi& api) {
  std::string reason;
  void* const handle = open_library(library, reason);
  if (handle == nullptr) return {nullptr, "no driver: " + reason};
#define PYC_FIND(name, parameters)             \
  if (!find_function(handle, #name, api.name)) \
    return {nullptr, std::string("the driver ") + library + " has no " #name};
  PYC_DRIVER_FUNCTIONS(PYC_FIND)
#undef PYC_FIND
#define PYC_FIND(name, parameters) find_function(handle, #name, api.name);
  PYC_OPTIONAL_DRIVER_FUNCTIONS(PYC_FIND)
#undef PYC_FIND
  const CUresult result = api.cuInit(0);
  if (result != CUDA_SUCCESS) return {nullptr, "the driver does not start: " + text_of(api, result)};
  return {&api, ""};
}

const DriverFinding& system_driver() {
  static DriverApi api;
  static const DriverFinding finding = load_driver("libcuda.so.1", api);
  return finding;
}

int version_of(const DriverApi& driver) {
  int version = 0;
  PYC_CUDA(driver, cuDriverGetVersion, &version);
  return version;
}

}  // namespace pyc::cuda
