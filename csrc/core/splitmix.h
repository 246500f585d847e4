// Random numbers, the same on every rank and platform: SplitMix64 (Steele, Lea, Flood 2014), a hash of a counter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace pyc {

/// A bijection in which each input bit affects all output bits.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// The hashes of 0, 1, 2, ... under a seed. The distributions of the standard library differ between platforms.
class SplitMix {
 public:
  explicit constexpr SplitMix(std::uint64_t seed) : seed_(mix(seed)) {}

  /// Uniform over 0..bound-1, 1 <= bound < 2^31. The probability of a value differs from 1 / bound by less than 2^-32.
  constexpr std::size_t below(std::size_t bound) { return static_cast<std::size_t>(((next() >> 32) * bound) >> 32); }

  /// Moves a uniform choice of `count` items to the front, in random order.
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
