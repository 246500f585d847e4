// The kernels: templates on the functors of the host (memory/functors.inc). NVRTC compiles them to device code
// (kernels.cu), and g++ to loops that tests run without a device (host_kernels.cc). Both give the bits of the host
// memory: inputs are reduced in ascending order, 16-bit floats in float32, totals are divided once, and no product is
// fused with a sum.
//
// All kernels are limited by memory bandwidth. With aligned operands, each thread moves 16 bytes at a time, adjacent
// threads access adjacent memory, and up to four inputs are loaded before the first is used. A thread reads all inputs
// of its elements before it writes, so an output may be one of the inputs.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define PYC_HOST_DEVICE __host__ __device__
#endif

#include "memory/cuda/kernel_arguments.h"
#include "memory/cuda/kernel_list.h"
#include "memory/functors.inc"

namespace pyc::cuda {
namespace {

// The types of elements in memory and of the accumulator.

template <class T, class Wide = T>
struct Plain {
  using Stored = T;
  using Accumulator = Wide;
  PYC_HOST_DEVICE static Wide widen(T value) { return static_cast<Wide>(value); }
  PYC_HOST_DEVICE static T narrow(Wide value) { return static_cast<T>(value); }
};

template <class T>
using Averaged = Plain<T, std::int64_t>;  // integers below 64 bits

struct Float16 {
  using Stored = std::uint16_t;
  using Accumulator = float;
  PYC_HOST_DEVICE static float widen(Stored value) { return widen_float16(value); }
  PYC_HOST_DEVICE static Stored narrow(float value) { return narrow_float16(value); }
};

struct Bfloat16 {
  using Stored = std::uint16_t;
  using Accumulator = float;
  PYC_HOST_DEVICE static float widen(Stored value) { return widen_bfloat16(value); }
  PYC_HOST_DEVICE static Stored narrow(float value) { return narrow_bfloat16(value); }
};

/// Elements moved by one access.
template <class T, unsigned Lanes>
struct alignas(sizeof(T) * Lanes) Pack {
  T lane[Lanes];
};

template <class T, unsigned Lanes>
PYC_HOST_DEVICE inline Pack<T, Lanes> load_pack(const std::byte* from, std::size_t index) {
  return reinterpret_cast<const Pack<T, Lanes>*>(from)[index];
}

template <class T, unsigned Lanes>
PYC_HOST_DEVICE inline void store_pack(const KernelArguments& a, std::size_t index, const Pack<T, Lanes>& value) {
  for (std::uint32_t o = 0; o < a.outputs; ++o) reinterpret_cast<Pack<T, Lanes>*>(a.out[o])[index] = value;
}

/// Calls use(r, pack of in[r]) for r = 1, 2, ..., in order. Loads four inputs before it uses the first.
template <class T, unsigned Lanes, class Use>
PYC_HOST_DEVICE inline void for_each_further_input(const KernelArguments& a, std::size_t index, Use use) {
  constexpr unsigned kAhead = 4;
  std::uint32_t r = 1;
  for (; r + kAhead <= a.inputs; r += kAhead) {
    Pack<T, Lanes> next[kAhead];
    for (unsigned i = 0; i < kAhead; ++i) next[i] = load_pack<T, Lanes>(a.in[r + i], index);
    for (unsigned i = 0; i < kAhead; ++i) use(r + i, next[i]);
  }
  for (; r < a.inputs; ++r) use(r, load_pack<T, Lanes>(a.in[r], index));
}

template <class T>
PYC_HOST_DEVICE inline T divided(T total, std::uint64_t divisor) {
  if (divisor == 1) return total;
  if constexpr (kIsFloat<T>) {
    if (total != total) return quiet(total);
  }
  return static_cast<T>(static_cast<Quotient<T>>(total) / static_cast<Quotient<T>>(divisor));
}

/// Outputs = in[0] op in[1] op ..., divided if it is an average.
template <class E, class Op, bool Divides = false>
struct Fold {
  using In = typename E::Stored;
  using Out = typename E::Stored;
  using A = typename E::Accumulator;

  template <unsigned Lanes>
  PYC_HOST_DEVICE static void at(const KernelArguments& a, std::size_t index) {
    Pack<In, Lanes> next = load_pack<In, Lanes>(a.in[0], index);
    A total[Lanes];
    for (unsigned i = 0; i < Lanes; ++i) total[i] = E::widen(next.lane[i]);
    for_each_further_input<In, Lanes>(a, index, [&](std::uint32_t, const Pack<In, Lanes>& values) {
      for (unsigned i = 0; i < Lanes; ++i) total[i] = Op::apply(total[i], E::widen(values.lane[i]));
    });
    for (unsigned i = 0; i < Lanes; ++i) {
      if constexpr (Divides) total[i] = divided(total[i], a.divisor);
      next.lane[i] = E::narrow(total[i]);
    }
    store_pack(a, index, next);
  }
};

/// Outputs = (in[0] + in[1] + ...) / divisor.
template <class E>
using Mean = Fold<E, Sum, true>;

/// Outputs (accumulator) = in[0] (element type).
template <class E>
struct Load {
  using In = typename E::Stored;
  using Out = typename E::Accumulator;
  using A = typename E::Accumulator;

  template <unsigned Lanes>
  PYC_HOST_DEVICE static void at(const KernelArguments& a, std::size_t index) {
    const Pack<In, Lanes> from = load_pack<In, Lanes>(a.in[0], index);
    Pack<Out, Lanes> into;
    for (unsigned i = 0; i < Lanes; ++i) into.lane[i] = E::widen(from.lane[i]);
    store_pack(a, index, into);
  }
};

/// Outputs (element type) = in[0] (accumulator), divided.
template <class E>
struct Store {
  using In = typename E::Accumulator;
  using Out = typename E::Stored;
  using A = typename E::Accumulator;

  template <unsigned Lanes>
  PYC_HOST_DEVICE static void at(const KernelArguments& a, std::size_t index) {
    const Pack<In, Lanes> from = load_pack<In, Lanes>(a.in[0], index);
    Pack<Out, Lanes> into;
    for (unsigned i = 0; i < Lanes; ++i) into.lane[i] = E::narrow(divided(from.lane[i], a.divisor));
    store_pack(a, index, into);
  }
};

/// Outputs = factor[0] * in[0] + factor[1] * in[1] + ...
template <class E>
struct WeightedSum {
  using In = typename E::Stored;
  using Out = typename E::Stored;
  using A = typename E::Accumulator;

  template <unsigned Lanes>
  PYC_HOST_DEVICE static void at(const KernelArguments& a, std::size_t index) {
    Pack<In, Lanes> next = load_pack<In, Lanes>(a.in[0], index);
    A total[Lanes];
    for (unsigned i = 0; i < Lanes; ++i) total[i] = E::widen(next.lane[i]) * static_cast<A>(a.factor[0]);
    for_each_further_input<In, Lanes>(a, index, [&](std::uint32_t r, const Pack<In, Lanes>& values) {
      const A factor = static_cast<A>(a.factor[r]);
      for (unsigned i = 0; i < Lanes; ++i) total[i] = Sum::apply(total[i], E::widen(values.lane[i]) * factor);
    });
    for (unsigned i = 0; i < Lanes; ++i) next.lane[i] = E::narrow(total[i]);
    store_pack(a, index, next);
  }
};

/// Elements per thread and step: 16 bytes of the widest operand, or 32 bytes of the accumulator.
template <class Body>
inline constexpr unsigned kLanes = [] {
  constexpr std::size_t sizes[] = {sizeof(typename Body::In), sizeof(typename Body::Out), sizeof(typename Body::A) / 2};
  std::size_t widest = 1;
  for (const std::size_t size : sizes) widest = size > widest ? size : widest;
  return static_cast<unsigned>(16 / widest);
}();

/// The part of thread `thread` of `threads`.
template <class Body>
PYC_HOST_DEVICE inline void run(const KernelArguments& a, std::size_t thread, std::size_t threads) {
  constexpr unsigned lanes = kLanes<Body>;
  const std::size_t packs = a.aligned != 0 ? a.count / lanes : 0;
  for (std::size_t i = thread; i < packs; i += threads) Body::template at<lanes>(a, i);
  for (std::size_t i = packs * lanes + thread; i < a.count; i += threads) Body::template at<1>(a, i);
}

}  // namespace
}  // namespace pyc::cuda
