// The state word of a slot of an update queue:
//
//   empty    no update, or one that is being written
//   full     an update, with its iteration
//   claimed  ... which the receiver is reading
//
// Its writer is the sender and its reader the receiver. Both may empty a full slot: the sender to write a newer update,
// the receiver to discard a stale one.
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
  /// Whether it has an update that is not being read.
  static constexpr bool is_full(Tag tag) { return !is_empty(tag) && !is_claimed(tag); }
  static constexpr bool is_claimed(Tag tag) { return (tag & kClaimed) != 0; }
  /// The slot must not be empty.
  static constexpr Iteration iter_of(Tag tag) { return (tag >> 1U) - 1; }
  bool is_full_of(Iteration iter) const { return tag() == full(iter); }

  // ---- the sender

  /// Empties the slot for the sender to write, unless the receiver reads it. Returns whether it is empty. `seen` is an
  /// earlier tag, which the receiver may have changed since.
  bool empty(Tag seen) {
    if (is_claimed(seen)) return false;
    if (tag_.compare_exchange_strong(seen, kEmpty)) return true;
    return is_empty(seen);  // otherwise the receiver has begun to read it
  }
  void fill(Iteration iter) { tag_.store(full(iter)); }

  // ---- the receiver

  bool claim(Iteration iter) {
    Tag expected = full(iter);
    return tag_.compare_exchange_strong(expected, full(iter) | kClaimed);
  }
  /// End a claim: `release` keeps the update, `dequeue` removes it.
  void release(Iteration iter) { tag_.store(full(iter)); }
  void dequeue() { tag_.store(kEmpty); }
  /// Empties the slot if its update is of an earlier iteration and not claimed.
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
