// Moves messages between ranks. A transport never looks inside a message and never reduces.
//
// Two kinds of message:
//   * A *message* has a tag, a header of a few dozen bytes and an optional payload of any size. It is received by a
//     posted `recv` with the same peer and tag; messages between two ranks with the same tag are received in the order
//     in which they were sent. A message without payload is how an absent block travels.
//   * An *active message* is a handful of bytes that nobody has posted a receive for. Active messages between two ranks
//   arrive in order.
//
// Everything is non-blocking. Completions are handed to a `Listener` from inside `poll`, on the polling thread, with
// the cookie given at the start. Nothing is ever cancelled. A transport is used by one thread at a time (the holder of
// the engine's progress lock).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/types.h"

namespace pyc {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

/// Names an operation in flight to its owner.
using Cookie = std::uint64_t;

/// Channel c of the collective with id i has tag c * kTagStride + first_tag(i). Of the first tags, 0 is the engine's
/// own, the last is of the collective that nobody creates, and the others are shared out by turns.
inline constexpr Tag kTagStride = 4096;
inline constexpr std::uint32_t kTurns = kTagStride - 2;

/// The id of a collective that is not created by all ranks together, but by each when it needs it first. There is one.
inline constexpr std::uint32_t kUncreated = ~std::uint32_t{0};

constexpr Tag first_tag(std::uint32_t collective) {
  return collective == kUncreated ? kTagStride - 1 : 1 + static_cast<Tag>(collective % kTurns);
}

/// The longest active message, in bytes: short enough for every MPI to send it without asking the receiver first.
inline constexpr std::size_t kMaxActiveMessage = 1024;

/// Is told, from inside `Transport::poll`, what has completed.
class Listener {
 public:
  virtual ~Listener() = default;

  /// The header and the payload of a send may be overwritten.
  virtual void on_sent(Cookie cookie) = 0;

  /// A posted receive has matched: `header` is valid during this call only. `has_payload` says whether the posted
  /// buffer has been filled.
  virtual void on_received(Cookie cookie, ConstBytes header, bool has_payload) = 0;

  /// `message` is valid during this call only.
  virtual void on_message(Rank from, ConstBytes message) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual Rank rank() const = 0;
  virtual Rank size() const = 0;

  /// Ranks, this one included, that share this machine: its cores and its memory.
  virtual Rank local_ranks() const = 0;

  /// Tags are at most this.
  virtual Tag max_tag() const = 0;

  /// Starts a message to `to`, whose receive is posted with as many bytes as `payload` has, sent or not. The header, a
  /// few hundred bytes at most, is copied at once; the payload must stay unchanged until `on_sent`.
  virtual void send(Rank to, Tag tag, ConstBytes header, ConstBytes payload, bool has_payload, Cookie cookie) = 0;

  /// Posts a receive. A payload that arrives fills exactly `payload`; another length is a `TransportError`.
  virtual void recv(Rank from, Tag tag, Bytes payload, Cookie cookie) = 0;

  /// Sends an active message of at most `kMaxActiveMessage` bytes; a rank may send to itself.
  void send_active(Rank to, ConstBytes message) {
    ++active_sent_;
    transmit_active(to, message);
  }
  std::uint64_t active_sent() const { return active_sent_; }

  /// Moves what can be moved and tells `listener` what completed. Returns whether anything did.
  virtual bool poll(Listener& listener) = 0;

  /// Sends or receives started and not completed.
  virtual std::size_t in_flight() const = 0;

  /// The ranks that are known to have died, ascending. Nothing if this is not looked for.
  virtual std::optional<std::vector<Rank>> failed_ranks() const { return std::nullopt; }

  /// Ends the use of the network. Collective: every rank has received all that was sent to it.
  virtual void close() = 0;

  /// The time in seconds on a monotonic clock of this transport's own (the simulator's is virtual).
  virtual Seconds now() const = 0;

 private:
  virtual void transmit_active(Rank to, ConstBytes message) = 0;

  std::uint64_t active_sent_ = 0;
};

}  // namespace pyc
