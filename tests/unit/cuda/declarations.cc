// Compares the declarations of csrc/memory/cuda/driver_api.h with those of NVIDIA's cuda.h: compiling it is the test.
#include "memory/cuda/driver_api.h"

#include <tuple>
#include <type_traits>

// cuda.h is given a namespace of its own, so that types of one name can be compared.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
constexpr unsigned kPortable = pyc::cuda::CU_MEMHOSTALLOC_PORTABLE;  // a macro there
namespace nvidia {
#include <cuda.h>
}
#undef cuMemAlloc
#undef cuMemFree

namespace {

template <class A, class B>
constexpr bool same_kind = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;

template <class A, class B>
struct SameFunction : std::false_type {};
template <class R, class... A, class S, class... B>
struct SameFunction<R (*)(A...), S (*)(B...)>
    : std::bool_constant<sizeof...(A) == sizeof...(B) && sizeof(R) == sizeof(S)> {
  static_assert((same_kind<A, B> && ...));
};

#define PYC_COMPARE(name, parameters) \
  static_assert(SameFunction<decltype(pyc::cuda::DriverApi::name), decltype(&nvidia::name)>::value, #name);
PYC_DRIVER_FUNCTIONS(PYC_COMPARE)
#if CUDA_VERSION >= 12040
PYC_OPTIONAL_DRIVER_FUNCTIONS(PYC_COMPARE)
#endif

#define PYC_SAME(name) static_assert(static_cast<long long>(pyc::cuda::name) == static_cast<long long>(nvidia::name));
PYC_SAME(CUDA_SUCCESS)
PYC_SAME(CUDA_ERROR_INVALID_VALUE)
PYC_SAME(CUDA_ERROR_OUT_OF_MEMORY)
PYC_SAME(CUDA_ERROR_DEINITIALIZED)
PYC_SAME(CUDA_ERROR_INVALID_IMAGE)
PYC_SAME(CUDA_ERROR_INVALID_CONTEXT)
PYC_SAME(CUDA_ERROR_NO_BINARY_FOR_GPU)
PYC_SAME(CUDA_ERROR_INVALID_PTX)
PYC_SAME(CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
PYC_SAME(CUDA_ERROR_INVALID_HANDLE)
PYC_SAME(CUDA_ERROR_NOT_FOUND)
PYC_SAME(CUDA_ERROR_NOT_READY)
PYC_SAME(CUDA_ERROR_ILLEGAL_ADDRESS)
PYC_SAME(CUDA_ERROR_CONTEXT_IS_DESTROYED)
PYC_SAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
PYC_SAME(CUDA_ERROR_CAPTURED_EVENT)
PYC_SAME(CU_STREAM_NON_BLOCKING)
PYC_SAME(CU_STREAM_CAPTURE_MODE_GLOBAL)
PYC_SAME(CU_STREAM_CAPTURE_MODE_RELAXED)
PYC_SAME(CU_STREAM_CAPTURE_STATUS_NONE)
PYC_SAME(CU_STREAM_CAPTURE_STATUS_ACTIVE)
PYC_SAME(CU_EVENT_DISABLE_TIMING)
PYC_SAME(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
PYC_SAME(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
PYC_SAME(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
PYC_SAME(CU_DEVICE_ATTRIBUTE_INTEGRATED)
PYC_SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE)
PYC_SAME(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)
PYC_SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
PYC_SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
#if CUDA_VERSION >= 12000
PYC_SAME(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED)
#endif
PYC_SAME(CU_COMPUTEMODE_EXCLUSIVE_PROCESS)
static_assert(kPortable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(sizeof(pyc::cuda::CUipcMemHandle) == sizeof(nvidia::CUipcMemHandle));

}  // namespace
