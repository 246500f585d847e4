// What waiting calls share. For ranks that share memory no message tells that one of them is gone.
#pragma once

#include <atomic>
#include <functional>
#include <optional>

#include "core/error.h"
#include "engine/engine.h"
#include "node/group_board.h"

namespace pyc {

/// For an inquiry: an engine answers by itself, so who does not within this is stopped or gone.
inline constexpr Seconds kAnswerTime = 0.5;

/// Says, for as long as it lives, that the application is in a call.
class InCall {
 public:
  explicit InCall(std::atomic<bool>& flag) : flag_(flag) { flag_ = true; }
  ~InCall() { flag_ = false; }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;

 private:
  std::atomic<bool>& flag_;
};

/// Sleeps until the group that is under way on a board can go on, at most `limit` seconds: meanwhile nobody drives the
/// engine. `under_way`: its board, under the progress lock, or null. Whether there was one.
template <class UnderWay>
bool sleep_on_board(Engine& engine, UnderWay under_way, Seconds limit) {
  GroupBoard* board = nullptr;
  std::optional<std::uint32_t> rings;
  engine.exclusively_if_free([&] {
    board = under_way();
    if (board != nullptr) rings = board->rings();
  });
  if (rings) board->sleep(*rings, limit);
  return board != nullptr;
}

/// `Engine::wait` with a look at who lives now and then: `check_alive` throws RankFailedError that names who died. It
/// is asked too if the transport is the first to say that somebody did: that need not know who.
inline bool wait_while_alive(Engine& engine, const std::function<bool()>& done, Seconds timeout,
                             const Engine::Interrupt& interrupt, const std::function<void()>& check_alive,
                             const Backoff::Sleep& sleep) {
  constexpr Seconds kCheckPeriod = 0.25;  // some system calls for each rank
  Seconds next_check = engine.transport().now() + kCheckPeriod;
  const auto look_around = [&] {
    if (interrupt) interrupt();
    if (engine.transport().now() < next_check) return;
    check_alive();
    next_check = engine.transport().now() + kCheckPeriod;
  };
  try {
    return engine.wait(done, timeout, look_around, sleep);
  } catch (const RankFailedError&) {
    check_alive();
    throw;
  }
}

}  // namespace pyc
