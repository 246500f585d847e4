#include "memory/cuda/device_code.h"

#include <stdexcept>
#include <string>

#include "memory/cuda/cuda_executor.h"

// NOLINTBEGIN(portability-no-assembler,readability-identifier-naming): a file in the middle of C++
__asm__(
    ".pushsection .rodata\n"
    ".hidden pyc_device_code, pyc_device_code_end\n"
    ".globl pyc_device_code, pyc_device_code_end\n"
    "pyc_device_code:\n"
    ".incbin \"" PYC_DEVICE_CODE
    "\"\n"
    "pyc_device_code_end:\n"
    ".byte 0\n"
    ".popsection\n");
extern "C" const char pyc_device_code[];
extern "C" const char pyc_device_code_end[];
// NOLINTEND(portability-no-assembler,readability-identifier-naming)

namespace pyc::cuda {
namespace {

bool is_of_code(CUresult error) {
  return error == CUDA_ERROR_INVALID_IMAGE || error == CUDA_ERROR_NO_BINARY_FOR_GPU ||
         error == CUDA_ERROR_INVALID_PTX || error == CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
}

std::string text_of_version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

std::string_view device_code() { return {pyc_device_code, pyc_device_code_end}; }

std::unique_ptr<Executor> make_executor_with_code(const DriverApi& driver, int ordinal) {
  try {
    return make_executor(driver, ordinal, device_code().data());
  } catch (const DriverError& error) {
    if (!is_of_code(error.code())) throw;
    throw std::runtime_error(
        std::string(error.what()) + "; the driver is for CUDA " + text_of_version(version_of(driver)) +
        ": expected a driver for CUDA 12.4 or later, and a device of compute capability 7.5 or later");
  }
}

}  // namespace pyc::cuda
