// Keeps the last few objects' memory for the next: what is made and let go in every call then allocates nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <new>

namespace pyc {

/// For `std::allocate_shared`. Any thread may let go.
template <class T>
class RecyclingAllocator {
 public:
  using value_type = T;

  RecyclingAllocator() = default;
  template <class U>
  RecyclingAllocator(const RecyclingAllocator<U>&) {}  // NOLINT(google-explicit-constructor): an allocator's

  T* allocate(std::size_t count) {
    if (count == 1) {
      for (std::atomic<void*>& kept : pool) {
        if (kept.load(std::memory_order_relaxed) == nullptr) continue;
        void* const memory = kept.exchange(nullptr, std::memory_order_acquire);
        if (memory != nullptr) return static_cast<T*>(memory);
      }
    }
    return static_cast<T*>(::operator new(count * sizeof(T)));
  }

  void deallocate(T* memory, std::size_t count) {
    if (count == 1) {
      for (std::atomic<void*>& kept : pool) {
        void* none = nullptr;
        if (kept.compare_exchange_strong(none, memory, std::memory_order_release, std::memory_order_relaxed)) return;
      }
    }
    ::operator delete(memory);
  }

  template <class U>
  bool operator==(const RecyclingAllocator<U>&) const {
    return true;
  }

 private:
  static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
  inline static std::array<std::atomic<void*>, 8> pool{};
};

}  // namespace pyc
