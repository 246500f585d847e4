// Random numbers that are the same on every rank and platform: SplitMix64 (Steele, Lea, Flood 2014), a hash of a
// counter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace pyc {

/// A bijection that mixes every bit into every other.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// The hashes of 0, 1, 2, ... under a seed. The standard library's distributions differ from platform to platform.
class SplitMix {
 public:
  explicit constexpr SplitMix(std::uint64_t seed) : seed_(mix(seed)) {}

  /// Uniform over 0..bound-1; 1 <= bound < 2^31, so that no value is preferred by more than 2^-33 of its share or so.
  constexpr std::size_t below(std::size_t bound) { return static_cast<std::size_t>(((next() >> 32) * bound) >> 32); }

  /// Puts a uniform choice of `count` of `items` in front, in random order.
  template <class Item>
  constexpr void shuffle_front(std::span<Item> items, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) std::swap(items[i], items[i + below(items.size() - i)]);
  }

 private:
  constexpr std::uint64_t next() { return mix(seed_ ^ counter_++); }

  std::uint64_t seed_;
  std::uint64_t counter_ = 0;
};

}  // namespace pyc
