#include "memory/cuda/device_code.h"

#include <stdexcept>

#include "memory/cuda/device_description.h"
#include "memory/cuda/fat_binary.h"
#include "memory/cuda/runtime_compiler.h"

namespace pyc::cuda {

std::string why_no_device_code() {
  if (!fat_binary().empty() || system_compiler().compiler != nullptr) return "";
  return std::string(why_no_fat_binary()) + ", and there is no NVRTC: " + system_compiler().reason;
}

std::string origin_of_device_code() {
  if (!fat_binary().empty()) return std::string("by nvcc, for compute capabilities ") + fat_binary_architectures();
  if (system_compiler().compiler == nullptr) return "";
  return "by NVRTC " + version_of(*system_compiler().compiler) + ", for the device at hand";
}

DeviceCode::DeviceCode(const DriverApi& driver, int ordinal) {
  if (!fat_binary().empty()) return;
  if (system_compiler().compiler == nullptr) throw std::runtime_error("CUDA: " + why_no_device_code());
  compiled_ = compile_kernels(*system_compiler().compiler, compute_capability(driver, ordinal));
}

const void* DeviceCode::image() const {
  return compiled_.empty() ? static_cast<const void*>(fat_binary().data()) : compiled_.c_str();
}

}  // namespace pyc::cuda
