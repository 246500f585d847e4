// NCCL, NVIDIA's library of reductions among devices, which comes with libraries such as PyTorch. Loaded when it is
// first asked for, never linked; where such a library has loaded it, it is that one. The declarations are those of
// NVIDIA's nccl.h, which a build need not have; a test compares them where it is there. Names are NCCL's own.
#pragma once

#include <climits>
#include <cstddef>
#include <string>

#include "memory/cuda/driver_api.h"

namespace pyc::cuda {

// NOLINTBEGIN(readability-identifier-naming)
using ncclResult_t = int;  // enums of that size
using ncclDataType_t = int;
using ncclRedOp_t = int;
using ncclComm_t = struct ncclComm*;
struct ncclUniqueId {
  char internal[128];
};

/// As of NCCL 2.14. A later NCCL takes from it what it has by its version, and sets the rest itself.
struct ncclConfig_t {
  std::size_t size = sizeof(ncclConfig_t);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
  int padding = INT_MIN;  // where NCCL 2.17 has another option: not set
};

inline constexpr ncclResult_t ncclSuccess = 0;
inline constexpr ncclResult_t ncclUnhandledCudaError = 1;
inline constexpr ncclResult_t ncclSystemError = 2;
inline constexpr ncclResult_t ncclInvalidArgument = 4;
inline constexpr ncclResult_t ncclInvalidUsage = 5;
inline constexpr ncclResult_t ncclInProgress = 7;

inline constexpr ncclRedOp_t ncclSum = 0;
inline constexpr ncclRedOp_t ncclProd = 1;
inline constexpr ncclRedOp_t ncclMax = 2;
inline constexpr ncclRedOp_t ncclMin = 3;

inline constexpr ncclDataType_t ncclInt8 = 0;
inline constexpr ncclDataType_t ncclUint8 = 1;
inline constexpr ncclDataType_t ncclInt32 = 2;
inline constexpr ncclDataType_t ncclUint32 = 3;
inline constexpr ncclDataType_t ncclInt64 = 4;
inline constexpr ncclDataType_t ncclUint64 = 5;
inline constexpr ncclDataType_t ncclFloat16 = 6;
inline constexpr ncclDataType_t ncclFloat32 = 7;
inline constexpr ncclDataType_t ncclFloat64 = 8;
inline constexpr ncclDataType_t ncclBfloat16 = 9;

// X(name, result, parameters) of every function that must be there.
#define PYC_NCCL_FUNCTIONS(X)                                                                                     \
  X(ncclGetVersion, ncclResult_t, (int* version))                                                                 \
  X(ncclGetErrorString, const char*, (ncclResult_t result))                                                       \
  X(ncclGetUniqueId, ncclResult_t, (ncclUniqueId * id))                                                           \
  X(ncclCommInitRankConfig, ncclResult_t,                                                                         \
    (ncclComm_t * communicator, int size, ncclUniqueId id, int number, ncclConfig_t* config))                     \
  X(ncclCommGetAsyncError, ncclResult_t, (ncclComm_t communicator, ncclResult_t * error))                         \
  X(ncclAllReduce, ncclResult_t,                                                                                  \
    (const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t communicator, \
     CUstream stream))                                                                                            \
  X(ncclCommAbort, ncclResult_t, (ncclComm_t communicator))

// Those that not every NCCL has; null where it is missing.
#define PYC_OPTIONAL_NCCL_FUNCTIONS(X) X(ncclGetLastError, const char*, (ncclComm_t communicator))

struct NcclApi {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration
#define PYC_DECLARE(name, result, parameters) result(*name) parameters = nullptr;
  PYC_NCCL_FUNCTIONS(PYC_DECLARE)
  PYC_OPTIONAL_NCCL_FUNCTIONS(PYC_DECLARE)
#undef PYC_DECLARE
};
// NOLINTEND(readability-identifier-naming)

/// An NCCL, or why there is none.
struct NcclFinding {
  const NcclApi* nccl = nullptr;
  std::string reason;  ///< empty if there is one
};

/// What finds one.
using NcclSource = NcclFinding (*)();

NcclFinding load_nccl(const char* library, NcclApi& api);

/// It, unless it is too old.
NcclFinding new_enough(const NcclApi& api);

/// That of this process or machine; looked for until there is one: another library may load it.
NcclFinding system_nccl();

/// As in 23203 for NCCL 2.32.3.
int version_of(const NcclApi& nccl);
std::string text_of_nccl_version(int version);

/// What NCCL says of an error.
std::string text_of(const NcclApi& nccl, ncclResult_t error);

}  // namespace pyc::cuda
