// Moves messages between ranks. A transport never interprets a message and never reduces data.
//
//   * A *message* has a tag, a header of a few dozen bytes and an optional payload of any size. A posted `recv` with
//     the same peer and tag receives it. Messages with the same tag between two ranks are received in sending order. A
//     message without a payload stands for an absent block.
//   * An *active message* is a few bytes without a posted receive. They arrive in order between two ranks.
//
// All functions are non-blocking. `poll` reports completions to a `Listener` on the polling thread, with the cookie of
// the start. Nothing is ever canceled. Only the holder of the engine's progress lock moves messages.
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

/// Identifies an operation in flight to its owner.
using Cookie = std::uint64_t;

/// Channel c of the collective with id i has tag c * kTagStride + first_tag(i). The engine has the first of the first
/// tags, the uncreated collective has the last, and the others are assigned in rotation.
inline constexpr Tag kTagStride = 4096;
inline constexpr std::uint32_t kTurns = kTagStride - 2;

/// The id of the only collective that ranks do not create together. Each rank creates it when it first needs it.
inline constexpr std::uint32_t kUncreated = ~std::uint32_t{0};

constexpr Tag first_tag(std::uint32_t collective) {
  return collective == kUncreated ? kTagStride - 1 : 1 + static_cast<Tag>(collective % kTurns);
}

/// The longest active message, in bytes: short enough for every MPI to send it eagerly.
inline constexpr std::size_t kMaxActiveMessage = 1024;

class Listener {
 public:
  virtual ~Listener() = default;

  /// A send has completed, and its payload may be overwritten.
  virtual void on_sent(Cookie cookie) = 0;

  /// A posted receive has matched. `header` is valid during this call only. `has_payload`: the buffer is filled.
  virtual void on_received(Cookie cookie, ConstBytes header, bool has_payload) = 0;

  /// `message` is valid during this call only.
  virtual void on_message(Rank from, ConstBytes message) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual Rank rank() const = 0;
  virtual Rank size() const = 0;

  /// The number of ranks, including this one, that share the cores and the memory of this machine.
  virtual Rank local_ranks() const = 0;

  virtual Tag max_tag() const = 0;

  /// Starts a message to `to`. Its receive is posted with the length of `payload`, even if no payload is sent. The
  /// header, a few hundred bytes at most, is copied at once. The payload must not change until `on_sent`.
  virtual void send(Rank to, Tag tag, ConstBytes header, ConstBytes payload, bool has_payload, Cookie cookie) = 0;

  /// Posts a receive. An arriving payload fills exactly `payload`; another length throws TransportError.
  virtual void recv(Rank from, Tag tag, Bytes payload, Cookie cookie) = 0;

  /// Sends an active message of at most `kMaxActiveMessage` bytes. A rank may send to itself.
  void send_active(Rank to, ConstBytes message) {
    ++active_sent_;
    transmit_active(to, message);
  }
  std::uint64_t active_sent() const { return active_sent_; }

  /// Makes progress and reports completions to `listener`. Returns whether anything moved.
  virtual bool poll(Listener& listener) = 0;

  /// The number of sends and receives that have started and not completed.
  virtual std::size_t in_flight() const = 0;

  /// The ranks that are known to have died, ascending. nullopt if the transport does not detect deaths.
  virtual std::optional<std::vector<Rank>> failed_ranks() const { return std::nullopt; }

  /// Ends the use of the network. Collective: every rank has received all messages sent to it.
  virtual void close() = 0;

  /// Seconds on a monotonic clock of this transport (virtual in the simulator).
  virtual Seconds now() const = 0;

 private:
  virtual void transmit_active(Rank to, ConstBytes message) = 0;

  std::uint64_t active_sent_ = 0;
};

}  // namespace pyc
