// Tests values for infinities and NaN, and refuses or skips gradients that have them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

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

enum class NotFinite : std::uint8_t { kReject, kSkip, kAccept };

/// Returns the gradient to push; null: one without an effect. Throws std::invalid_argument if it is rejected. `name`:
/// of the server.
inline const std::byte* accepted(NotFinite rule, DataType type, const std::byte* gradient, std::size_t count,
                                 const std::string& name) {
  if (rule == NotFinite::kAccept || all_finite(type, gradient, count)) return gradient;
  if (rule == NotFinite::kSkip) return nullptr;
  throw std::invalid_argument("'" + name +
                              "': expected finite values, got NaN or infinity; nothing is pushed. nan=\"skip\" pushes "
                              "without an effect instead, nan=\"accept\" takes them");
}

}  // namespace pyc::server
