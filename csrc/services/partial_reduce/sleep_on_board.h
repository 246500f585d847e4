// Waiting for a group in a node's shared memory.
#pragma once

#include <optional>

#include "engine/engine.h"
#include "services/partial_reduce/group_board.h"

namespace pyc {

/// Sleeps until the current group on a board can continue, at most `limit` seconds; the engine is not driven during
/// that time. `under_way()` returns the board or null, under the progress lock. Returns whether there was a board.
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
