// The mutex of a board.
#pragma once

#include "core/lock_order.h"
#include "node/robust_mutex.h"

namespace pyc {

using BoardMutex = Ordered<LockRank::kBoard, RobustMutex>;

}  // namespace pyc
