// The active messages by which engines talk about themselves, as collective 0: what `Bootstrap`, `Shutdown` and
// `RollCall` have in common. Each of these is a single-threaded state machine without clock or I/O, which is given a
// way to send; the engine hands it what arrives.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <span>

#include "core/error.h"
#include "core/types.h"
#include "engine/collective.h"
#include "transport/transport.h"

namespace pyc {

enum class Control : std::uint32_t {
  // Bootstrap
  kDigest,
  kVerdict,
  kTexts,
  kAllTexts,
  kHandedDown,
  // Shutdown
  kClosed,
  kAllClosed,
  kCounts,
  kCountAgain,
  kEnd,
  // RollCall
  kInquiry,
  kAnswer,
  // Engine
  kGaveUp,
  kLeft,
};

constexpr MessageHeader control(Control kind) { return {0, static_cast<std::uint32_t>(kind)}; }

/// Sends an active message of at most `kMaxActiveMessage` bytes. Messages between two ranks arrive in order.
using SendControl = std::function<void(Rank to, ConstBytes message)>;

template <class Message>
ConstBytes bytes_of(const Message& message) {
  static_assert(sizeof(Message) <= kMaxActiveMessage);
  return std::as_bytes(std::span(&message, 1));
}

/// The fixed part of a message.
template <class Message>
Message read_control(ConstBytes bytes) {
  Message message;
  if (bytes.size() < sizeof message) throw InternalError("a message of an engine is too short");
  std::memcpy(&message, bytes.data(), sizeof message);
  return message;
}

}  // namespace pyc
