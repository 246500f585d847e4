#include "memory/cuda/runtime_compiler.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <vector>

#include "memory/cuda/driver.h"
#include "memory/cuda/kernel_sources.h"
#include "memory/cuda/library.h"

namespace pyc::cuda {
namespace {

void check_compiler(const CompilerApi& compiler, nvrtcResult result, const char* call) {
  if (result == 0) return;
  throw std::runtime_error(std::string("NVRTC: ") + call + ": " + compiler.nvrtcGetErrorString(result));
}
#define PYC_NVRTC(compiler, name, ...) check_compiler(compiler, (compiler).name(__VA_ARGS__), #name)

int major_of(const CompilerApi& compiler) {
  int major = 0;
  int minor = 0;
  PYC_NVRTC(compiler, nvrtcVersion, &major, &minor);
  return major;
}

/// The newest that is not newer than the device.
int architecture_for(const CompilerApi& compiler, int capability) {
  int number = 0;
  PYC_NVRTC(compiler, nvrtcGetNumSupportedArchs, &number);
  std::vector<int> known(static_cast<std::size_t>(number));
  PYC_NVRTC(compiler, nvrtcGetSupportedArchs, known.data());
  std::erase_if(known, [&](int one) { return one > capability; });
  if (known.empty()) {
    throw std::runtime_error("NVRTC " + version_of(compiler) + " compiles nothing for compute capability " +
                             std::to_string(capability / 10) + "." + std::to_string(capability % 10));
  }
  return *std::max_element(known.begin(), known.end());
}

class Program {
 public:
  explicit Program(const CompilerApi& compiler) : compiler_(compiler) {
    const auto sources = kernel_sources();
    std::vector<const char*> texts;
    std::vector<const char*> names;
    for (const KernelSource& header : sources.subspan(1)) {
      texts.push_back(header.text);
      names.push_back(header.name);
    }
    PYC_NVRTC(compiler_, nvrtcCreateProgram, &program_, sources[0].text, sources[0].name,
              static_cast<int>(texts.size()), texts.data(), names.data());
  }
  ~Program() { compiler_.nvrtcDestroyProgram(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void compile(const std::vector<const char*>& options) {
    const nvrtcResult result =
        compiler_.nvrtcCompileProgram(program_, static_cast<int>(options.size()), options.data());
    if (result == 0) return;
    throw std::runtime_error(std::string("NVRTC: ") + compiler_.nvrtcGetErrorString(result) + ": " + log());
  }

  std::string ptx() const {
    std::size_t bytes = 0;
    PYC_NVRTC(compiler_, nvrtcGetPTXSize, program_, &bytes);
    std::string text(bytes, '\0');
    PYC_NVRTC(compiler_, nvrtcGetPTX, program_, text.data());
    text.resize(bytes - 1);  // a string has a NUL of its own
    return text;
  }

  /// Empty if it was compiled to PTX alone.
  std::string machine_code() const {
    std::size_t bytes = 0;
    PYC_NVRTC(compiler_, nvrtcGetCUBINSize, program_, &bytes);
    std::string code(bytes, '\0');
    if (bytes != 0) PYC_NVRTC(compiler_, nvrtcGetCUBIN, program_, code.data());
    return code;
  }

 private:
  std::string log() const {
    std::size_t bytes = 0;
    if (compiler_.nvrtcGetProgramLogSize(program_, &bytes) != 0 || bytes == 0) return "";
    std::string text(bytes, '\0');
    compiler_.nvrtcGetProgramLog(program_, text.data());
    text.resize(bytes - 1);
    return text;
  }

  const CompilerApi& compiler_;
  nvrtcProgram program_ = nullptr;
};

}  // namespace

CompilerFinding load_compiler(const char* library, CompilerApi& api) {
  std::string reason;
  void* const handle = open_library(library, reason);
  if (handle == nullptr) return {nullptr, "no compiler: " + reason};
#define PYC_FIND(name, result, parameters)     \
  if (!find_function(handle, #name, api.name)) \
    return {nullptr, std::string("the compiler ") + library + " has no " #name};
  PYC_COMPILER_FUNCTIONS(PYC_FIND)
#undef PYC_FIND
  return {&api, ""};
}

CompilerFinding find_compiler(const std::vector<std::string>& libraries, int driver_major, CompilerApi& api) {
  std::string reason;
  for (const std::string& library : libraries) {
    const CompilerFinding found = load_compiler(library.c_str(), api);
    if (found.compiler != nullptr && major_of(api) <= driver_major) return found;
    if (found.compiler != nullptr) {
      reason =
          "NVRTC " + version_of(api) + " is newer than the driver, which is for CUDA " + std::to_string(driver_major);
    } else if (reason.empty()) {
      reason = found.reason;
    }
  }
  return {nullptr, reason};
}

const CompilerFinding& system_compiler() {
  static CompilerApi api;
  static const CompilerFinding finding = [] {
    const DriverApi* const driver = system_driver().driver;
    const int major = driver != nullptr ? version_of(*driver) / 1000 : std::numeric_limits<int>::max();
    return find_compiler({"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}, major, api);
  }();
  return finding;
}

std::string version_of(const CompilerApi& compiler) {
  int major = 0;
  int minor = 0;
  PYC_NVRTC(compiler, nvrtcVersion, &major, &minor);
  return std::to_string(major) + "." + std::to_string(minor);
}

CompiledKernels compile_kernels(const CompilerApi& compiler, int capability) {
  const int architecture = architecture_for(compiler, capability);
  const std::string kind = architecture == capability ? "sm_" : "compute_";
  const std::string target = "--gpu-architecture=" + kind + std::to_string(architecture);
  Program program(compiler);
  // As nvcc in device_code.cmake. NVRTC knows no host: what is not marked, such as a lambda, is the device's.
  program.compile({target.c_str(), "--std=c++17", "--fmad=false", "--device-as-default-execution-space"});
  return {program.ptx(), program.machine_code()};
}

#undef PYC_NVRTC

}  // namespace pyc::cuda
