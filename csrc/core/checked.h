// Overflow-checked arithmetic on sizes that may depend on the caller's arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace pyc {

/// Throws std::length_error if no object can be that large. A result leaves room for rounding up.
inline std::size_t checked_product(std::size_t times, std::size_t bytes) {
  std::size_t product = 0;
  if (__builtin_mul_overflow(times, bytes, &product) || product > PTRDIFF_MAX) {
    throw std::length_error(std::to_string(times) + " times " + std::to_string(bytes) +
                            " bytes are more than can be addressed");
  }
  return product;
}

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

constexpr std::size_t in_pages(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  return round_up(bytes, kPage);
}

}  // namespace pyc
