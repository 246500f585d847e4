// The used functions of the CUDA driver, as a table of pointers: from libcuda.so.1 (driver.h), or from the simulated
// driver of the tests. A build need not have NVIDIA's cuda.h, so this file declares them under the driver's names. If
// cuda.h is there, a test compares the declarations.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pyc::cuda {

using CUresult = int;  // an enum of that size in cuda.h
using CUdevice = int;
using CUdeviceptr = std::uint64_t;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
struct CUipcMemHandle {
  char reserved[64];
};

inline constexpr CUresult CUDA_SUCCESS = 0;
inline constexpr CUresult CUDA_ERROR_INVALID_VALUE = 1;
inline constexpr CUresult CUDA_ERROR_OUT_OF_MEMORY = 2;
inline constexpr CUresult CUDA_ERROR_DEINITIALIZED = 4;
inline constexpr CUresult CUDA_ERROR_INVALID_IMAGE = 200;
inline constexpr CUresult CUDA_ERROR_INVALID_CONTEXT = 201;
inline constexpr CUresult CUDA_ERROR_NO_BINARY_FOR_GPU = 209;
inline constexpr CUresult CUDA_ERROR_INVALID_PTX = 218;
inline constexpr CUresult CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222;
inline constexpr CUresult CUDA_ERROR_INVALID_HANDLE = 400;
inline constexpr CUresult CUDA_ERROR_NOT_FOUND = 500;
inline constexpr CUresult CUDA_ERROR_NOT_READY = 600;
inline constexpr CUresult CUDA_ERROR_ILLEGAL_ADDRESS = 700;
inline constexpr CUresult CUDA_ERROR_CONTEXT_IS_DESTROYED = 709;
inline constexpr CUresult CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900;  // the first error about captures ...
inline constexpr CUresult CUDA_ERROR_CAPTURED_EVENT = 907;              // ... and the last

inline constexpr unsigned CU_STREAM_NON_BLOCKING = 1;
inline constexpr int CU_STREAM_CAPTURE_MODE_GLOBAL = 0;
inline constexpr int CU_STREAM_CAPTURE_MODE_RELAXED = 2;
inline constexpr int CU_STREAM_CAPTURE_STATUS_NONE = 0;
inline constexpr int CU_STREAM_CAPTURE_STATUS_ACTIVE = 1;
inline constexpr unsigned CU_EVENT_DISABLE_TIMING = 2;
inline constexpr unsigned CU_MEMHOSTALLOC_PORTABLE = 1;
inline constexpr unsigned CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1;
inline constexpr int CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9;
inline constexpr int CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16;
inline constexpr int CU_DEVICE_ATTRIBUTE_INTEGRATED = 18;
inline constexpr int CU_DEVICE_ATTRIBUTE_COMPUTE_MODE = 20;
inline constexpr int CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41;
inline constexpr int CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75;
inline constexpr int CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76;
inline constexpr int CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED = 125;  // CUDA 12 and later
inline constexpr int CU_COMPUTEMODE_EXCLUSIVE_PROCESS = 3;

// X(name, parameters) for each required function. All return a CUresult.
#define PYC_DRIVER_FUNCTIONS(X)                                                                                  \
  X(cuInit, (unsigned flags))                                                                                    \
  X(cuDriverGetVersion, (int* version))                                                                          \
  X(cuGetErrorName, (CUresult error, const char** text))                                                         \
  X(cuGetErrorString, (CUresult error, const char** text))                                                       \
  X(cuDeviceGetCount, (int* count))                                                                              \
  X(cuDeviceGet, (CUdevice * device, int ordinal))                                                               \
  X(cuDeviceGetName, (char* name, int length, CUdevice device))                                                  \
  X(cuDeviceGetAttribute, (int* value, int attribute, CUdevice device))                                          \
  X(cuDeviceTotalMem_v2, (std::size_t* bytes, CUdevice device))                                                  \
  X(cuDeviceGetPCIBusId, (char* id, int length, CUdevice device))                                                \
  X(cuDeviceCanAccessPeer, (int* can, CUdevice device, CUdevice peer))                                           \
  X(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                                            \
  X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                                             \
  X(cuCtxPushCurrent_v2, (CUcontext context))                                                                    \
  X(cuCtxPopCurrent_v2, (CUcontext * context))                                                                   \
  X(cuModuleLoadData, (CUmodule * module, const void* image))                                                    \
  X(cuModuleUnload, (CUmodule module))                                                                           \
  X(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char* name))                             \
  X(cuMemAlloc_v2, (CUdeviceptr * data, std::size_t bytes))                                                      \
  X(cuMemFree_v2, (CUdeviceptr data))                                                                            \
  X(cuMemHostAlloc, (void** data, std::size_t bytes, unsigned flags))                                            \
  X(cuMemFreeHost, (void* data))                                                                                 \
  X(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream))                       \
  X(cuPointerGetAttribute, (void* value, int attribute, CUdeviceptr data))                                       \
  X(cuCtxGetStreamPriorityRange, (int* least, int* greatest))                                                    \
  X(cuStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority))                               \
  X(cuStreamIsCapturing, (CUstream stream, int* status))                                                         \
  X(cuThreadExchangeStreamCaptureMode, (int* mode))                                                              \
  X(cuStreamDestroy_v2, (CUstream stream))                                                                       \
  X(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                                         \
  X(cuEventCreate, (CUevent * event, unsigned flags))                                                            \
  X(cuEventRecord, (CUevent event, CUstream stream))                                                             \
  X(cuEventQuery, (CUevent event))                                                                               \
  X(cuEventDestroy_v2, (CUevent event))                                                                          \
  X(cuLaunchKernel,                                                                                              \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
     unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters, void** extra))                 \
  X(cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr data))                                              \
  X(cuIpcOpenMemHandle_v2, (CUdeviceptr * data, CUipcMemHandle handle, unsigned flags))                          \
  X(cuIpcCloseMemHandle, (CUdeviceptr data))

// Functions that some drivers do not have; then they are null.
#define PYC_OPTIONAL_DRIVER_FUNCTIONS(X) X(cuFuncLoad, (CUfunction function)) /* CUDA 12.4 */

struct DriverApi {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration
#define PYC_DECLARE(name, parameters) CUresult(*name) parameters = nullptr;
  PYC_DRIVER_FUNCTIONS(PYC_DECLARE)
  PYC_OPTIONAL_DRIVER_FUNCTIONS(PYC_DECLARE)
#undef PYC_DECLARE
};

}  // namespace pyc::cuda
