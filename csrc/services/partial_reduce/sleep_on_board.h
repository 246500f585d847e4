// How a call waits for a group that is under way in its node's shared memory.
#pragma once

#include <optional>

#include "engine/engine.h"
#include "services/partial_reduce/group_board.h"

namespace pyc {

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

}  // namespace pyc
