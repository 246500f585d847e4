// The active messages by which engines talk about themselves, as collective 0: what `Bootstrap`, `Shutdown`,
// `RollCall` and `Heartbeat` have in common. Each of these is a single-threaded state machine without clock or I/O,
// which is given a way to send; the engine hands it what arrives.
#pragma once

#include <cstdint>
#include <functional>

#include "core/types.h"
#include "engine/message.h"
#include "transport/transport.h"

namespace pyc {

enum class Control : std::uint32_t {
  // Bootstrap
  kDigest,
  kVerdict,
  kTexts,
  kAllTexts,
  kHandedDown,
  kWithdraw,
  kWithdrawn,
  // Shutdown
  kClosed,
  kAllClosed,
  kCounts,
  kCountAgain,
  kEnd,
  // RollCall
  kInquiry,
  kAnswer,
  // Heartbeat
  kHeartbeat,
  // Engine
  kGaveUp,
  kLeft,
  kNotice,
};

constexpr MessageHeader control(Control kind) { return {0, static_cast<std::uint32_t>(kind)}; }

/// Sends an active message of at most `kMaxActiveMessage` bytes. Messages between two ranks arrive in order.
using SendControl = std::function<void(Rank to, ConstBytes message)>;

}  // namespace pyc
