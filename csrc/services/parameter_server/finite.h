// Tests values for infinities and NaN.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/types.h"

namespace pyc::server {

/// Whether no value has all bits of `exponent` set, as infinities and NaN have.
template <class Bits>
bool has_none_above(const std::byte* values, std::size_t count, Bits exponent) {
  constexpr std::size_t kChunk = 4096;  // no branch in the inner loop, so that compilers vectorize it
  for (std::size_t first = 0; first < count; first += kChunk) {
    const std::size_t end = std::min(count, first + kChunk);
    Bits found = 0;
    for (std::size_t i = first; i < end; ++i) {
      Bits bits;
      std::memcpy(&bits, values + i * sizeof bits, sizeof bits);
      found = static_cast<Bits>(found | static_cast<Bits>((bits & exponent) == exponent));
    }
    if (found != 0) return false;
  }
  return true;
}

inline bool all_finite(DataType type, const std::byte* values, std::size_t count) {
  switch (type) {
    case DataType::kFloat16:
      return has_none_above<std::uint16_t>(values, count, 0x7c00U);
    case DataType::kBfloat16:
      return has_none_above<std::uint16_t>(values, count, 0x7f80U);
    case DataType::kFloat32:
      return has_none_above<std::uint32_t>(values, count, 0x7f800000U);
    default:
      return has_none_above<std::uint64_t>(values, count, 0x7ff0000000000000U);
  }
}

}  // namespace pyc::server
