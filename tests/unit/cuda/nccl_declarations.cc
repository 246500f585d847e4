// Compares the declarations of csrc/memory/cuda/nccl_api.h with those of NVIDIA's nccl.h: compiling it is the test.
#include "memory/cuda/nccl_api.h"

#include <cstddef>
#include <type_traits>

#include <nccl.h>

namespace {

template <class A, class B>
constexpr bool same_kind = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;

template <class A, class B>
struct SameFunction : std::false_type {};
template <class R, class... A, class S, class... B>
struct SameFunction<R (*)(A...), S (*)(B...)> : std::bool_constant<sizeof...(A) == sizeof...(B) && same_kind<R, S>> {
  static_assert((same_kind<A, B> && ...));
};

#define PYC_COMPARE(name, result, parameters) \
  static_assert(SameFunction<decltype(pyc::cuda::NcclApi::name), decltype(&::name)>::value, #name);
PYC_NCCL_FUNCTIONS(PYC_COMPARE)
PYC_OPTIONAL_NCCL_FUNCTIONS(PYC_COMPARE)

#define PYC_SAME(name) static_assert(static_cast<int>(pyc::cuda::name) == static_cast<int>(::name));
PYC_SAME(ncclSuccess)
PYC_SAME(ncclUnhandledCudaError)
PYC_SAME(ncclSystemError)
PYC_SAME(ncclInvalidArgument)
PYC_SAME(ncclInvalidUsage)
PYC_SAME(ncclInProgress)
PYC_SAME(ncclSum)
PYC_SAME(ncclProd)
PYC_SAME(ncclMax)
PYC_SAME(ncclMin)
PYC_SAME(ncclInt8)
PYC_SAME(ncclUint8)
PYC_SAME(ncclInt32)
PYC_SAME(ncclUint32)
PYC_SAME(ncclInt64)
PYC_SAME(ncclUint64)
PYC_SAME(ncclFloat16)
PYC_SAME(ncclFloat32)
PYC_SAME(ncclFloat64)
PYC_SAME(ncclBfloat16)

static_assert(sizeof(pyc::cuda::ncclUniqueId) == sizeof(::ncclUniqueId));
constexpr ::ncclConfig_t kTheirs = NCCL_CONFIG_INITIALIZER;
constexpr pyc::cuda::ncclConfig_t kOurs;
static_assert(kOurs.size <= kTheirs.size && kOurs.magic == kTheirs.magic && kOurs.version <= kTheirs.version);
static_assert(kOurs.padding == NCCL_CONFIG_UNDEF_INT);
static_assert(offsetof(pyc::cuda::ncclConfig_t, magic) == offsetof(::ncclConfig_t, magic));
static_assert(offsetof(pyc::cuda::ncclConfig_t, version) == offsetof(::ncclConfig_t, version));
static_assert(offsetof(pyc::cuda::ncclConfig_t, blocking) == offsetof(::ncclConfig_t, blocking));

}  // namespace
