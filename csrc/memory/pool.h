// Buffers of one size that the application, the engine and the user's arrays share. A buffer returns to the pool with
// its last reference. A warm pool allocates nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/lock_order.h"
#include "memory/memory.h"

namespace pyc {

class BufferPool;

/// A counted reference to a pooled buffer; may be empty.
class BufferRef {
 public:
  BufferRef() = default;
  BufferRef(const BufferRef& other) : entry_(other.entry_) { retain(); }
  BufferRef(BufferRef&& other) noexcept : entry_(std::exchange(other.entry_, nullptr)) {}
  BufferRef& operator=(BufferRef other) noexcept {
    std::swap(entry_, other.entry_);
    return *this;
  }
  ~BufferRef() { reset(); }

  inline void reset();
  inline std::byte* data() const;
  explicit operator bool() const { return entry_ != nullptr; }

 private:
  friend class BufferPool;
  struct Entry;
  explicit BufferRef(Entry* entry) : entry_(entry) {}
  inline void retain();
  static inline void release(Entry* entry);

  Entry* entry_ = nullptr;
};

struct BufferRef::Entry {
  std::atomic<std::size_t> references{0};
  BufferPtr memory;
  std::shared_ptr<BufferPool> pool;  // set while referenced: a buffer that the user holds keeps its pool alive
};

class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  BufferPool(ReductionMemory& memory, std::size_t bytes) : memory_(memory), bytes_(bytes) {}

  /// A buffer with no other reference and arbitrary contents. Allocates only if all are in use.
  BufferRef take() {
    BufferRef::Entry* entry = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (free_.empty()) {
        entries_.push_back(std::make_unique<BufferRef::Entry>());
        entries_.back()->memory = memory_.allocate(bytes_);
        free_.reserve(entries_.size());  // give_back never allocates
        entry = entries_.back().get();
      } else {
        entry = free_.back();
        free_.pop_back();
      }
    }
    entry->references.store(1, std::memory_order_relaxed);
    entry->pool = shared_from_this();
    return BufferRef(entry);
  }

  std::size_t memory_bytes() const {
    const std::lock_guard lock(mutex_);
    return entries_.size() * bytes_;
  }

 private:
  friend class BufferRef;
  void give_back(BufferRef::Entry* entry) {
    const std::lock_guard lock(mutex_);
    free_.push_back(entry);
  }

  ReductionMemory& memory_;
  std::size_t bytes_;
  mutable Ordered<LockRank::kPool> mutex_;  // innermost: its holders take no other lock
  std::vector<std::unique_ptr<BufferRef::Entry>> entries_;
  std::vector<BufferRef::Entry*> free_;
};

inline std::byte* BufferRef::data() const { return entry_ == nullptr ? nullptr : entry_->memory.get(); }

inline void BufferRef::retain() {
  if (entry_ != nullptr) entry_->references.fetch_add(1, std::memory_order_relaxed);
}

inline void BufferRef::reset() {
  if (Entry* const entry = std::exchange(entry_, nullptr); entry != nullptr) release(entry);
}

inline void BufferRef::release(Entry* entry) {
  // acquire-release: every holder's accesses to the buffer happen before its next use.
  if (entry->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::shared_ptr<BufferPool> pool = std::move(entry->pool);  // may be the last owner, and must outlive give_back
  pool->give_back(entry);
}

}  // namespace pyc
