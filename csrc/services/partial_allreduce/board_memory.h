// Divides shared memory among the parts of a board, the same way on each rank. Without memory it only counts bytes.
#pragma once

#include <cstddef>
#include <memory>

#include "core/checked.h"

namespace pyc {

/// Arrays of equal length. Each begins on its own cache line.
template <class T>
class SharedRows {
 public:
  SharedRows() = default;
  SharedRows(std::byte* first, std::size_t stride) : first_(first), stride_(stride) {}
  T* operator[](std::size_t row) const { return reinterpret_cast<T*>(first_ + row * stride_); }

 private:
  std::byte* first_ = nullptr;
  std::size_t stride_ = 0;
};

class BoardMemory {
 public:
  /// `base`: null to count bytes only. `first`: constructs the objects, before the other ranks join.
  BoardMemory(std::byte* base, bool first) : base_(base), constructs_(first && base != nullptr) {}

  bool constructs() const { return constructs_; }
  std::size_t used() const { return used_; }

  template <class T>
  T* take(std::size_t count) {
    std::byte* const at = take_bytes(count * sizeof(T), kLine);
    if (constructs_) std::uninitialized_value_construct_n(reinterpret_cast<T*>(at), count);
    return reinterpret_cast<T*>(at);
  }

  template <class T>
  SharedRows<T> take_rows(std::size_t rows, std::size_t length) {
    const std::size_t stride = round_up(length * sizeof(T), kLine);
    const SharedRows<T> taken(take_bytes(rows * stride, kLine), stride);
    for (std::size_t row = 0; constructs_ && row < rows; ++row) {
      std::uninitialized_value_construct_n(taken[row], length);
    }
    return taken;
  }

  /// Relies on new memory being zero, so that pages stay untouched until their first use.
  template <class T>
  T* take_zeroed(std::size_t count) {
    return reinterpret_cast<T*>(take_bytes(count * sizeof(T), kLine));
  }

  std::byte* take_pages(std::size_t bytes) { return take_bytes(bytes, kPage); }

  static constexpr std::size_t kLine = 64;
  static constexpr std::size_t kPage = 4096;

 private:
  std::byte* take_bytes(std::size_t bytes, std::size_t alignment) {
    used_ = round_up(used_, alignment);
    std::byte* const at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += bytes;
    return at;
  }

  std::byte* base_;
  bool constructs_;
  std::size_t used_ = 0;
};

}  // namespace pyc
