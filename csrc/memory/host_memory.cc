// The memory of this process: the C library allocates, and loops use the best instruction set found at run time.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <string>

#include "core/error.h"
#include "memory/kernels.h"
#include "memory/memory.h"
#include "memory/numbers.h"

namespace pyc {
namespace {

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kLarge = std::size_t{1} << 20U;
constexpr std::size_t kHugePage = std::size_t{2} << 20U;

const Kernels& best_kernels() {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx2 && avx512) return kAvx512Kernels;
  if (avx2) return kAvx2Kernels;
#endif
  return kBaselineKernels;
}

/// Elements per block. Data is widened, processed and narrowed by blocks that fit into the first-level cache.
constexpr std::size_t kBlock = 1024;

struct alignas(kCacheLine) Block {
  std::byte data[kBlock * sizeof(std::int64_t)];
};

/// Calls body(first, length) for consecutive blocks that make up `count` elements.
template <class Body>
void for_each_block(std::size_t count, Body body) {
  for (std::size_t first = 0; first < count; first += kBlock) body(first, std::min(kBlock, count - first));
}

void require_divisor(std::size_t divisor) {
  if (divisor < 1 || divisor > static_cast<std::size_t>(std::numeric_limits<Rank>::max())) {
    throw InternalError("divisor " + std::to_string(divisor) + " is no number of ranks");
  }
}

template <class T>
T identity_of(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
    case ReduceOp::kLor:
    case ReduceOp::kLxor:
    case ReduceOp::kBor:
    case ReduceOp::kBxor:
      return T{0};
    case ReduceOp::kProd:
    case ReduceOp::kLand:
      return T{1};
    case ReduceOp::kBand:
      return static_cast<T>(-1);
    case ReduceOp::kMin:
      return Limits::has_infinity ? Limits::infinity() : Limits::max();
    case ReduceOp::kMax:
      return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  }
  return T{};
}

/// For a complex number with parts of type T.
template <class T>
std::array<T, 2> complex_identity_of(ReduceOp op) {
  return {identity_of<T>(op), T{0}};
}

template <class T>
void fill(std::byte* into, std::size_t count, T value) {
  for (std::size_t i = 0; i < count; ++i) store_at(into, i, value);
}

template <class T>
void multiply(std::byte* data, std::size_t count, T factor) {
  for (std::size_t i = 0; i < count; ++i) store_at(data, i, load_at<T>(data, i) * factor);
}

template <class T>
void average_pair(std::byte* __restrict a, std::byte* __restrict b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const T mean = (load_at<T>(a, i) + load_at<T>(b, i)) / 2;
    store_at(a, i, mean);
    store_at(b, i, mean);
  }
}

template <class T>
void meet_half_way(std::byte* __restrict data, std::byte* __restrict step, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const T own = load_at<T>(data, i);
    const T half = (load_at<T>(step, i) - own) / 2;
    store_at(data, i, own + half);
    store_at(step, i, half);
  }
}

template <class T>
void add_multiple(std::byte* __restrict data, const std::byte* __restrict step, std::size_t count, T factor) {
  for (std::size_t i = 0; i < count; ++i) store_at(data, i, load_at<T>(data, i) + factor * load_at<T>(step, i));
}

template <class T>
void mix_pair(std::byte* __restrict a, std::byte* __restrict b, std::size_t count, T kept) {
  for (std::size_t i = 0; i < count; ++i) {
    const T mean = (load_at<T>(a, i) + load_at<T>(b, i)) / 2;
    const T half = kept * ((load_at<T>(a, i) - load_at<T>(b, i)) / 2);
    store_at(a, i, mean + half);
    store_at(b, i, mean - half);
  }
}

class HostMemory final : public Memory {
 public:
  BufferPtr allocate(std::size_t bytes) override {
    const std::size_t alignment = bytes >= kHugePage ? kHugePage : bytes >= kLarge ? kPage : kCacheLine;
    void* data = nullptr;
    if (posix_memalign(&data, alignment, std::max<std::size_t>(bytes, 1)) != 0) throw std::bad_alloc();
    // Huge pages, if the kernel has any, make the first touch and sums over much memory faster.
    if (alignment == kHugePage) madvise(data, bytes, MADV_HUGEPAGE);
    return BufferPtr(static_cast<std::byte*>(data), BufferDeleter{this});
  }

  void release(std::byte* data) noexcept override { std::free(data); }

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
  }

  void load(Elements elements, std::byte* into, const std::byte* from, std::size_t count) override {
    if (elements.widened()) return kernels_[elements.type].widen(into, from, count);
    copy(into, from, count * size_of(elements.type));
  }

  void accumulate(Elements elements, ReduceOp op, std::byte* into, const std::byte* from, std::size_t count) override {
    if (!elements.widened()) return reduce(elements, op, into, from, count);
    for_each_block(count, [&](std::size_t first, std::size_t length) {
      Block wide;
      load(elements, wide.data, from + first * size_of(elements.type), length);
      reduce(elements, op, into + first * size_of(elements.accumulator), wide.data, length);
    });
  }

  void reduce(Elements elements, ReduceOp op, std::byte* into, const std::byte* from, std::size_t count) override {
    const auto loop = kernels_[elements.accumulator].reduce[static_cast<std::size_t>(op)];
    if (loop == nullptr) throw InternalError("an operation that is not defined on its elements");
    loop(into, from, count);
  }

  void add(Elements elements, std::byte* into, const std::byte* from, std::size_t count, std::size_t divisor) override {
    require_divisor(divisor);
    kernels_[elements.accumulator].add(into, from, count, divisor);
  }

  void store(Elements elements, std::byte* into, const std::byte* from, std::size_t count,
             std::size_t divisor) override {
    require_divisor(divisor);
    const auto divide = kernels_[elements.accumulator].divide;
    if (!elements.widened()) {
      return divisor == 1 ? copy(into, from, count * size_of(elements.type)) : divide(into, from, count, divisor);
    }
    const auto narrow = kernels_[elements.type].narrow;
    if (divisor == 1) return narrow(into, from, count);
    for_each_block(count, [&](std::size_t first, std::size_t length) {
      Block quotients;
      divide(quotients.data, from + first * size_of(elements.accumulator), length, divisor);
      narrow(into + first * size_of(elements.type), quotients.data, length);
    });
  }

  void scale(DataType type, std::byte* data, std::size_t count, double factor) override {
    of_float(type, "scale", [&](auto zero) { multiply(data, count, static_cast<decltype(zero)>(factor)); });
  }

  void average(DataType type, std::byte* a, std::byte* b, std::size_t count) override {
    of_float(type, "average", [&](auto zero) { average_pair<decltype(zero)>(a, b, count); });
  }

  void meet(DataType type, std::byte* data, std::byte* step, std::size_t count) override {
    of_float(type, "meet", [&](auto zero) { meet_half_way<decltype(zero)>(data, step, count); });
  }

  void add_scaled(DataType type, std::byte* data, const std::byte* step, std::size_t count, double factor) override {
    of_float(type, "add_scaled",
             [&](auto zero) { add_multiple(data, step, count, static_cast<decltype(zero)>(factor)); });
  }

  void mix(DataType type, std::byte* a, std::byte* b, std::size_t count, double kept) override {
    of_float(type, "mix", [&](auto zero) { mix_pair(a, b, count, static_cast<decltype(zero)>(kept)); });
  }

  void fill_identity(Elements elements, ReduceOp op, std::byte* into, std::size_t count) override {
    switch (elements.accumulator) {
      case DataType::kFloat16:
      case DataType::kBfloat16:
      case DataType::kFloat32:
        return fill(into, count, identity_of<float>(op));
      case DataType::kFloat64:
        return fill(into, count, identity_of<double>(op));
      case DataType::kInt8:
        return fill(into, count, identity_of<std::int8_t>(op));
      case DataType::kInt16:
        return fill(into, count, identity_of<std::int16_t>(op));
      case DataType::kInt32:
        return fill(into, count, identity_of<std::int32_t>(op));
      case DataType::kInt64:
        return fill(into, count, identity_of<std::int64_t>(op));
      case DataType::kUint8:
      case DataType::kBool:
        return fill(into, count, identity_of<std::uint8_t>(op));
      case DataType::kUint16:
        return fill(into, count, identity_of<std::uint16_t>(op));
      case DataType::kUint32:
        return fill(into, count, identity_of<std::uint32_t>(op));
      case DataType::kUint64:
        return fill(into, count, identity_of<std::uint64_t>(op));
      case DataType::kComplex64:
        return fill(into, count, complex_identity_of<float>(op));
      case DataType::kComplex128:
        return fill(into, count, complex_identity_of<double>(op));
    }
  }

 private:
  const Kernels& kernels_ = best_kernels();
};

}  // namespace

Memory& host_memory() {
  static HostMemory memory;
  return memory;
}

}  // namespace pyc
