// What the ranks of a node show each other in *direct rounds*: each posts its data, and computes the result from the
// posts of all, without the board's mutex. docs/board.md says which rounds go that way.
//
// A post is written by its rank alone, in turn to two places: whoever posts for round r + 1 has done with round r, so
// once that is complete the places of round r are free for round r + 2.
//
// As long as a round lacks a post, the board can take it over: it closes the posts first, and whoever posts looks
// whether they are closed afterwards. All operations on tags and on `closed` are sequentially consistent, hence one of
// the two sees the other. A post that the board has taken is marked, so that its rank is told however late it looks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/types.h"
#include "services/partial_allreduce/board_memory.h"
#include "services/partial_allreduce/board_shape.h"

namespace pyc {

class BoardPosts {
 public:
  /// Of the rank `own`.
  BoardPosts(BoardMemory& memory, const BoardShape& shape, Rank own);

  /// There are direct rounds on this board.
  bool on() const { return ranks_ > 0; }
  /// The open round is the board's, and so are those after it until `reopen`.
  bool closed() const { return gate_->closed.load(); }

  // ---- this rank

  /// Where it writes what it posts for a round.
  std::byte* own_data(RoundNumber round) const { return data(own_, round); }
  /// What is there is final. `closed` is to be looked at next, as `state` does.
  void post(RoundNumber round, Seconds called, std::uint64_t sequence);

  enum class State : std::uint8_t {
    kOpen,       // somebody has not posted
    kComplete,   // everybody has, and the round is direct
    kTaken,      // the board has taken it over
    kUndecided,  // somebody is about to close or has closed the posts: `decided` knows
  };
  /// Of a round that this rank has posted for.
  State state(RoundNumber round) const;
  /// How many rounds are complete, as far as this rank's posts tell: 0 if it has posted none. Never too many, and never
  /// fewer than before.
  RoundNumber completed() const;

  // ---- of a complete round, or under the mutex

  const std::byte* data_of(Rank local, RoundNumber round) const { return data(local, round); }
  Seconds called(Rank local, RoundNumber round) const {
    return at(local, round).called.load(std::memory_order_relaxed);
  }
  std::uint64_t sequence(Rank local, RoundNumber round) const { return at(local, round).sequence; }
  /// Local rank of who was the first to call; of several the lowest.
  Rank first_to_call(RoundNumber round) const;

  // ---- under the mutex

  /// `state`, and never kUndecided. kOpen: this rank posted too late, and is to `take` its post back.
  State decided(RoundNumber round) const;
  /// ... and the round that is open now, if the board's record says that so many are complete.
  RoundNumber close(RoundNumber completed);
  void reopen() { gate_->closed.store(false); }
  /// Marks a rank's post for a round, if there is one.
  bool take(Rank local, RoundNumber round);

  // ---- any thread

  bool has_posted(Rank local, RoundNumber round) const { return at(local, round).tag.load() == posted(round); }
  /// When it last posted; 0: never.
  Seconds last_called(Rank local) const;

 private:
  using Tag = std::uint64_t;

  /// Zeroed memory is a place that nothing was posted to. The data follows.
  struct Post {
    std::atomic<Tag> tag{0};
    std::atomic<Seconds> called{0};
    std::uint64_t sequence = 0;
  };
  struct Gate {
    std::atomic<bool> closed{false};
  };
  /// How many rounds a rank has found to be complete.
  struct Found {
    alignas(64) std::atomic<RoundNumber> complete{0};
  };
  static constexpr std::size_t kPlaces = 2;
  static constexpr std::size_t kDataAt = 32;  // a few elements lie on the line of their tag

  static constexpr Tag posted(RoundNumber round) { return (round + 1) << 1U; }
  static constexpr Tag taken(RoundNumber round) { return posted(round) | 1U; }

  std::byte* place(Rank local, RoundNumber round) const {
    return places_[kPlaces * static_cast<std::size_t>(local) + round % kPlaces];
  }
  Post& at(Rank local, RoundNumber round) const { return *reinterpret_cast<Post*>(place(local, round)); }
  std::byte* data(Rank local, RoundNumber round) const { return place(local, round) + kDataAt; }
  bool all_posted(RoundNumber round) const;
  RoundNumber begun() const;
  State note_complete(RoundNumber round) const;

  Rank ranks_;
  Rank own_;
  Gate* gate_;
  Found* found_ = nullptr;  // this rank's
  SharedRows<std::byte> places_;
};

}  // namespace pyc
