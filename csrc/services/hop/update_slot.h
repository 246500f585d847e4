// The word of a slot of an update queue: what lies in the slot, and whose its memory is.
//
//   empty    nobody's, or being written
//   full     an update of that iteration
//   claimed  ... which the receiver is reading
//
// A slot has one writer, the sender, and one reader, the receiver. Both may empty a full one: the sender to write a
// newer update, the receiver to discard a stale one.
#pragma once

#include <atomic>
#include <cstdint>

#include "services/hop/options.h"

namespace pyc {

/// Zeroed memory is an empty slot.
class UpdateSlot {
 public:
  using Tag = std::uint64_t;

  Tag tag() const { return tag_.load(); }
  static constexpr bool is_empty(Tag tag) { return tag == kEmpty; }
  /// Whether there is an update that nobody reads.
  static constexpr bool is_full(Tag tag) { return !is_empty(tag) && !is_claimed(tag); }
  static constexpr bool is_claimed(Tag tag) { return (tag & kClaimed) != 0; }
  /// Of a slot that is not empty.
  static constexpr Iteration iter_of(Tag tag) { return (tag >> 1U) - 1; }
  bool is_full_of(Iteration iter) const { return tag() == full(iter); }

  // ---- the sender

  /// Makes it empty, for the sender to write to, unless the receiver reads it; whether it is. `seen`: its tag a while
  /// ago, since when the receiver may have done anything.
  bool empty(Tag seen) {
    if (is_claimed(seen)) return false;
    if (tag_.compare_exchange_strong(seen, kEmpty)) return true;
    return is_empty(seen);  // or the receiver has begun to read it
  }
  void fill(Iteration iter) { tag_.store(full(iter)); }

  // ---- the receiver

  /// False if there is no update of that iteration, or no more.
  bool claim(Iteration iter) {
    Tag expected = full(iter);
    return tag_.compare_exchange_strong(expected, full(iter) | kClaimed);
  }
  /// Of one that it has claimed: puts it back, or makes it empty.
  void release(Iteration iter) { tag_.store(full(iter)); }
  void dequeue() { tag_.store(kEmpty); }
  /// Makes it empty if its update is of an earlier iteration; whether it was.
  bool discard_before(Iteration iter) {
    Tag seen = tag();
    return is_full(seen) && iter_of(seen) < iter && tag_.compare_exchange_strong(seen, kEmpty);
  }

 private:
  static constexpr Tag kEmpty = 0;
  static constexpr Tag kClaimed = 1;  // a bit of a full slot's tag
  static constexpr Tag full(Iteration iter) { return (iter + 1) << 1U; }

  std::atomic<Tag> tag_{kEmpty};
};

}  // namespace pyc
