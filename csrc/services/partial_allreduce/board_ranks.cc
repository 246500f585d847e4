#include "services/partial_allreduce/board_ranks.h"

#include <algorithm>

#include "core/hot.h"

namespace pyc {

BoardRanks::BoardRanks(BoardMemory& memory, const BoardShape& shape, Rank own)
    : count_(static_cast<Rank>(shape.local_ranks())),
      own_(own),
      words_((shape.local_ranks() + 63) / 64),
      slots_(memory.take<BoardSlot>(shape.local_ranks())),
      counts_(memory.take<Counts>(1)),
      arrived_(memory.take<std::uint64_t>(words_)),
      left_(memory.take<std::uint64_t>(words_)),
      closed_(memory.take<std::uint64_t>(words_)) {}

bool BoardRanks::own_is_first_that_waits() const {
  return std::none_of(slots_, slots_ + own_,
                      [](const BoardSlot& s) { return s.waits.load(std::memory_order_relaxed); });
}

PYC_HOT void BoardRanks::arrive() { insert(arrived_, own_, counts_->arrived); }

void BoardRanks::leave(bool for_good) {
  insert(left_, own_, counts_->left);
  if (for_good) insert(closed_, own_, counts_->closed);
}

PYC_HOT void BoardRanks::end_round(bool flush) {
  if (flush) {
    std::copy_n(closed_, words_, left_);
    counts_->left = counts_->closed;
  }
  for (Rank i = 0; i < count_; ++i) slots_[i].taken = false;
  std::fill_n(arrived_, words_, 0);
  counts_->arrived = 0;
}

}  // namespace pyc
