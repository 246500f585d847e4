// Copies of large data that is not read again soon. Non-temporal stores avoid reading the destination and keep the
// caches' contents. These work for any alignment; for some, memcpy takes three times as long (16 MB, AMD Zen 3).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace pyc::server {

inline constexpr std::size_t kCacheLine = 64;

inline std::size_t bytes_to_line(const std::byte* at) {
  return (kCacheLine - reinterpret_cast<std::uintptr_t>(at) % kCacheLine) % kCacheLine;
}

/// Writes a whole cache line, given as vectors of 16 bytes, to the beginning of a line.
template <class Vector>
void stream_line(std::byte* to, const Vector (&line)[kCacheLine / sizeof(Vector)]) {
#if defined(__x86_64__)
  for (std::size_t i = 0; i < kCacheLine / sizeof(Vector); ++i) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, std::bit_cast<__m128i>(line[i]));
  }
#else
  std::memcpy(to, line, kCacheLine);
#endif
}

/// Streamed stores are weakly ordered. The fence makes them visible before later stores, such as notifications.
inline void end_stream() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

inline void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) {
#if defined(__x86_64__)
  std::size_t at = std::min(bytes, bytes_to_line(to));
  std::memcpy(to, from, at);
  for (; at + kCacheLine <= bytes; at += kCacheLine) {
    __m128i line[kCacheLine / sizeof(__m128i)];
    std::memcpy(line, from + at, kCacheLine);
    stream_line(to + at, line);
  }
  std::memcpy(to + at, from + at, bytes - at);
  end_stream();
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace pyc::server
