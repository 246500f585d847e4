// Copies of any length, fast for short ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/hot.h"
#include "memory/memory.h"

namespace pyc {

/// Copies a few bytes inline, because a call would cost more.
PYC_HOT inline void copy(ReductionMemory& memory, std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t kFewBytes = 64;
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  if (bytes > kFewBytes || bytes % kWord != 0) return memory.copy(to, from, bytes);
  for (std::size_t i = 0; i < bytes; i += kWord) std::memmove(to + i, from + i, kWord);
}

/// into (accumulator) = from (element type).
PYC_HOT inline void load(ReductionMemory& memory, Elements elements, std::byte* into, const std::byte* from,
                         std::size_t count) {
  if (elements.widened()) return memory.load(elements, into, from, count);
  copy(memory, into, from, count * size_of(elements.type));
}

}  // namespace pyc
