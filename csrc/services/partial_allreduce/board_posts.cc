#include "services/partial_allreduce/board_posts.h"

#include <algorithm>
#include <new>

#include "core/hot.h"

namespace pyc {

BoardPosts::BoardPosts(BoardMemory& memory, const BoardShape& shape, Rank own)
    : ranks_(shape.posts ? static_cast<Rank>(shape.local_ranks()) : 0), own_(own), gate_(memory.take<Gate>(1)) {
  static_assert(sizeof(Post) <= kDataAt);
  if (!on()) return;
  const std::size_t places = kPlaces * shape.local_ranks();
  places_ = memory.take_rows<std::byte>(places, kDataAt + shape.buffer_bytes());
  for (std::size_t i = 0; memory.constructs() && i < places; ++i) new (places_[i]) Post;
  found_ = memory.take<Found>(shape.local_ranks()) + own;
}

// ------------------------------------------------------------------------------------------------ this rank

PYC_HOT void BoardPosts::post(RoundNumber round, Seconds called, std::uint64_t sequence) {
  Post& own = at(own_, round);
  own.called.store(called, std::memory_order_relaxed);
  own.sequence = sequence;
  own.tag.store(posted(round));
}

PYC_HOT bool BoardPosts::all_posted(RoundNumber round) const {
  for (Rank i = 0; i < ranks_; ++i) {
    if (!has_posted(i, round)) return false;
  }
  return true;
}

/// A rank that closes the posts looks for the missing post afterwards. If all posts are present and not closed, either
/// no rank has closed them while one was missing, or they were closed and reopened. In the second case this rank's post
/// is marked as taken.
PYC_HOT BoardPosts::State BoardPosts::state(RoundNumber round) const {
  const std::atomic<Tag>& own = at(own_, round).tag;
  if (own.load() == taken(round)) return State::kTaken;
  const bool complete = all_posted(round);
  if (closed()) return State::kUndecided;
  if (!complete) return State::kOpen;
  return own.load() == posted(round) ? note_complete(round) : State::kTaken;
}

/// Remembers that the round is complete. It stays direct if the posts are closed later, but `state` could not tell.
PYC_HOT BoardPosts::State BoardPosts::note_complete(RoundNumber round) const {
  RoundNumber found = found_->complete.load(std::memory_order_relaxed);
  while (found <= round && !found_->complete.compare_exchange_weak(found, round + 1, std::memory_order_relaxed)) {
  }
  return State::kComplete;
}

/// The newest round that this rank has posted for, plus 1. All earlier rounds are complete.
RoundNumber BoardPosts::begun() const { return std::max(at(own_, 0).tag.load(), at(own_, 1).tag.load()) >> 1U; }

/// All posts may be present without the round being complete: the last post may be too late, during a takeover.
PYC_HOT RoundNumber BoardPosts::completed() const {
  const RoundNumber begun = on() ? this->begun() : 0;
  if (begun == 0 || state(begun - 1) == State::kComplete) return begun;
  return std::max(begun - 1, found_->complete.load(std::memory_order_relaxed));
}

// ------------------------------------------------------------------------------------------------ others

PYC_HOT Rank BoardPosts::first_to_call(RoundNumber round) const {
  Rank first = 0;
  for (Rank i = 1; i < ranks_; ++i) {
    if (called(i, round) < called(first, round)) first = i;
  }
  return first;
}

Seconds BoardPosts::last_called(Rank local) const { return on() ? std::max(called(local, 0), called(local, 1)) : 0; }

// ------------------------------------------------------------------------------------------------ under the mutex

BoardPosts::State BoardPosts::decided(RoundNumber round) const {
  if (at(own_, round).tag.load() == taken(round)) return State::kTaken;
  return all_posted(round) ? note_complete(round) : State::kOpen;
}

/// A direct round that this rank has not posted for is not complete.
RoundNumber BoardPosts::close(RoundNumber completed) {
  gate_->closed.store(true);
  const RoundNumber begun = this->begun();
  return std::max(completed, begun > 0 && !all_posted(begun - 1) ? begun - 1 : begun);
}

bool BoardPosts::take(Rank local, RoundNumber round) {
  if (!has_posted(local, round)) return false;
  at(local, round).tag.store(taken(round));
  return true;
}

}  // namespace pyc
