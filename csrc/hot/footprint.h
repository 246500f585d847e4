// What a call is going to touch, so that all of it can be fetched at once when the call begins.
//
// A rank that comes out of a sleep has nothing in its caches and no address translated. One after the other, as the
// call comes to them, forty cache lines on twenty pages cost several microseconds; asked for together they cost little
// more than the slowest of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pyc {

class Footprint {
 public:
  /// The cache lines of `bytes` bytes there; what exceeds the capacity is left out.
  void add(const void* first, std::size_t bytes) {
    const char* const end = static_cast<const char*>(first) + bytes;
    for (const char* line = rounded_down(first, kLine); line < end; line += kLine) {
      if (count_ < lines_.size()) lines_[count_++] = line;
    }
  }
  template <class Object>
  void add(const Object* object) {
    add(object, sizeof(Object));
  }

  /// The pages around a function marked PYC_HOT: all that are lie together.
  void add_code(const void* function) {
    constexpr std::ptrdiff_t kPage = 4096;
    const char* const page = rounded_down(function, kPage);
    for (std::ptrdiff_t i = -4; i <= 4; ++i) add(page + i * kPage, 1);
  }

  /// Harmless where there is nothing any more.
  void fetch() const {
    for (std::size_t i = 0; i < count_; ++i) __builtin_prefetch(lines_[i], 1);
  }

 private:
  static constexpr std::size_t kLine = 64;

  static const char* rounded_down(const void* address, std::size_t unit) {
    return static_cast<const char*>(address) - reinterpret_cast<std::uintptr_t>(address) % unit;
  }

  std::size_t count_ = 0;
  std::array<const void*, 95> lines_{};
};

}  // namespace pyc
