// The compiler of device code that a machine may have without nvcc: NVRTC, which comes with the CUDA toolkit and with
// libraries such as PyTorch. Loaded when it is first asked for, never linked. It compiles the same text as nvcc.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace pyc::cuda {

// NOLINTBEGIN(readability-identifier-naming): names are NVRTC's own
using nvrtcResult = int;  // an enum of that size
using nvrtcProgram = struct nvrtcProgram_st*;

// X(name, result, parameters) of every function that is used.
#define PYC_COMPILER_FUNCTIONS(X)                                                                         \
  X(nvrtcGetErrorString, const char*, (nvrtcResult result))                                               \
  X(nvrtcVersion, nvrtcResult, (int* major, int* minor))                                                  \
  X(nvrtcGetNumSupportedArchs, nvrtcResult, (int* number))                                                \
  X(nvrtcGetSupportedArchs, nvrtcResult, (int* architectures))                                            \
  X(nvrtcCreateProgram, nvrtcResult,                                                                      \
    (nvrtcProgram * program, const char* source, const char* name, int headers, const char* const* texts, \
     const char* const* names))                                                                           \
  X(nvrtcCompileProgram, nvrtcResult, (nvrtcProgram program, int number, const char* const* options))     \
  X(nvrtcGetProgramLogSize, nvrtcResult, (nvrtcProgram program, std::size_t* bytes))                      \
  X(nvrtcGetProgramLog, nvrtcResult, (nvrtcProgram program, char* log))                                   \
  X(nvrtcGetPTXSize, nvrtcResult, (nvrtcProgram program, std::size_t* bytes))                             \
  X(nvrtcGetPTX, nvrtcResult, (nvrtcProgram program, char* ptx))                                          \
  X(nvrtcGetCUBINSize, nvrtcResult, (nvrtcProgram program, std::size_t* bytes))                           \
  X(nvrtcGetCUBIN, nvrtcResult, (nvrtcProgram program, char* code))                                       \
  X(nvrtcDestroyProgram, nvrtcResult, (nvrtcProgram * program))

struct CompilerApi {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration
#define PYC_DECLARE(name, result, parameters) result(*name) parameters = nullptr;
  PYC_COMPILER_FUNCTIONS(PYC_DECLARE)
#undef PYC_DECLARE
};

// NOLINTEND(readability-identifier-naming)

/// A compiler, or why there is none.
struct CompilerFinding {
  const CompilerApi* compiler = nullptr;
  std::string reason;  ///< empty if there is one
};

CompilerFinding load_compiler(const char* library, CompilerApi& api);

/// The first of `libraries` that is there and no newer than a driver for CUDA `driver_major`.
CompilerFinding find_compiler(const std::vector<std::string>& libraries, int driver_major, CompilerApi& api);

/// That of this process or machine, for its driver; looked for once.
const CompilerFinding& system_compiler();

/// As in 13.1.
std::string version_of(const CompilerApi& compiler);

/// Machine code is for one kind of device, and any driver of the compiler's major version takes it. PTX is for later
/// devices too, but a driver that is older than the compiler need not take it.
struct CompiledKernels {
  std::string ptx;
  std::string machine_code;  ///< empty if the device is newer than the compiler

  const void* image() const { return machine_code.empty() ? ptx.c_str() : machine_code.data(); }
};

/// The kernels for devices of a compute capability (90: 9.0), or, if that is newer than the compiler, of the newest
/// that it knows. std::runtime_error with what the compiler says.
CompiledKernels compile_kernels(const CompilerApi& compiler, int capability);

}  // namespace pyc::cuda
