#include "memory/cuda/driver.h"

#include <dlfcn.h>

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

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

void check(const DriverApi& driver, CUresult result, const char* call, const char* advice) {
  if (result == CUDA_SUCCESS) return;
  throw DriverError(result, std::string("CUDA: ") + call + ": " + text_of(driver, result) + advice);
}

DriverFinding load_driver(const char* library, DriverApi& api) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);  // never closed: the driver has threads of its own
  if (handle == nullptr) {
    const char* const error = dlerror();
    return {nullptr, std::string("no driver: ") + (error != nullptr ? error : library)};
  }
#define PYC_FIND(name, parameters) \
  if (!find(handle, #name, api.name)) return {nullptr, std::string("the driver ") + library + " has no " #name};
  PYC_DRIVER_FUNCTIONS(PYC_FIND)
#undef PYC_FIND
#define PYC_FIND(name, parameters) find(handle, #name, api.name);
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
