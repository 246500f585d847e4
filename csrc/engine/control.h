// Control messages: active messages of the engines themselves, as collective 0. `Bootstrap`, `Shutdown`, `RollCall` and
// `Heartbeat` are single-threaded state machines without clock or I/O. The engine gives them a send function and passes
// arriving messages to them.
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
  kStop,
};

constexpr MessageHeader control(Control kind) { return {0, static_cast<std::uint32_t>(kind)}; }

/// Sends an active message of at most `kMaxActiveMessage` bytes. Messages between two ranks arrive in order.
using SendControl = std::function<void(Rank to, ConstBytes message)>;

}  // namespace pyc
