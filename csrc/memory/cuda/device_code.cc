#include "memory/cuda/device_code.h"

#include <stdexcept>

#include "memory/cuda/cuda_executor.h"
#include "memory/cuda/device_description.h"
#include "memory/cuda/fat_binary.h"
#include "memory/cuda/runtime_compiler.h"

namespace pyc::cuda {
namespace {

bool is_of_code(CUresult error) {
  return error == CUDA_ERROR_INVALID_IMAGE || error == CUDA_ERROR_NO_BINARY_FOR_GPU ||
         error == CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
}

/// Null, and the driver's reason, if it does not take that code.
std::unique_ptr<Executor> try_code(const DriverApi& driver, int ordinal, const void* image, std::string& reason) {
  try {
    return make_executor(driver, ordinal, image);
  } catch (const DriverError& error) {
    if (!is_of_code(error.code())) throw;
    reason = error.what();
    return nullptr;
  }
}

std::unique_ptr<Executor> try_compiler(const DriverApi& driver, int ordinal, std::string& reason) {
  const CompilerApi& compiler = *system_compiler().compiler;
  try {
    const CompiledKernels kernels = compile_kernels(compiler, compute_capability(driver, ordinal));
    return try_code(driver, ordinal, kernels.image(), reason);
  } catch (const DriverError&) {
    throw;
  } catch (const std::runtime_error& error) {  // of the compiler
    reason += (reason.empty() ? "" : "; ") + std::string(error.what());
    return nullptr;
  }
}

std::string text_of_version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

std::string why_no_device_code() {
  if (!fat_binary().empty() || system_compiler().compiler != nullptr) return "";
  return std::string(why_no_fat_binary()) + ", and there is no NVRTC: " + system_compiler().reason;
}

std::string origin_of_device_code() {
  if (!fat_binary().empty()) return std::string("by nvcc, for compute capabilities ") + fat_binary_architectures();
  if (system_compiler().compiler == nullptr) return "";
  return "by NVRTC " + version_of(*system_compiler().compiler) + ", for the device at hand";
}

std::unique_ptr<Executor> make_executor_with_code(const DriverApi& driver, int ordinal) {
  const bool has_compiler = system_compiler().compiler != nullptr;
  if (fat_binary().empty() && !has_compiler) throw std::runtime_error("CUDA: " + why_no_device_code());
  std::string reason;
  std::unique_ptr<Executor> made;
  if (!fat_binary().empty()) made = try_code(driver, ordinal, fat_binary().data(), reason);
  if (!made && has_compiler) made = try_compiler(driver, ordinal, reason);
  if (made) return made;
  const std::string wanted = fat_binary().empty() ? version_of(*system_compiler().compiler) : fat_binary_cuda();
  throw std::runtime_error(reason + "; the driver is for CUDA " + text_of_version(version_of(driver)) +
                           " and takes no code for this device: install a driver for CUDA " + wanted +
                           " or later, or the NVRTC that came with this one");
}

}  // namespace pyc::cuda
