// *Direct rounds*, in which each rank posts its data and reduces all posts itself, without the board's mutex: see
// "Direct rounds" in docs/board.md. A rank posts alternately in two places, so the places of round r are free for round
// r + 2.
//
// A board that takes over a round closes the posts, then looks for them; a rank that posts looks at `closed`
// afterwards. All operations on tags and on `closed` are sequentially consistent, so one of the two ranks sees the
// other. A post that the board has taken is marked, so that its rank notices however late it looks.
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
  BoardPosts(BoardMemory& memory, const BoardShape& shape, Rank own);

  /// Whether rounds may be direct.
  bool on() const { return ranks_ > 0; }
  /// The open round belongs to the board, and so do later rounds until `reopen`.
  bool closed() const { return gate_->closed.load(); }

  // ---- this rank

  std::byte* own_data(RoundNumber round) const { return data(own_, round); }
  /// Publishes the data, which is final. The caller must call `state` next, which looks at `closed`.
  void post(RoundNumber round, Seconds called, std::uint64_t sequence);

  enum class State : std::uint8_t {
    kOpen,       // a post is missing
    kComplete,   // all ranks have posted, and the round is direct
    kTaken,      // the board has taken it over
    kUndecided,  // the posts are closed or about to be: call `decided`
  };
  /// The state of a round for which this rank has posted.
  State state(RoundNumber round) const;
  /// Number of completed rounds, as far as this rank's posts show. Never too high, and never decreases.
  RoundNumber completed() const;

  // ---- for a complete round, or under the mutex

  const std::byte* data_of(Rank local, RoundNumber round) const { return data(local, round); }
  Seconds called(Rank local, RoundNumber round) const {
    return at(local, round).called.load(std::memory_order_relaxed);
  }
  std::uint64_t sequence(Rank local, RoundNumber round) const { return at(local, round).sequence; }
  /// Local rank of the first caller, the lowest of several.
  Rank first_to_call(RoundNumber round) const;

  // ---- under the mutex

  /// `state`, but never kUndecided. With kOpen, this rank has posted too late and must `take` its post back.
  State decided(RoundNumber round) const;
  /// Closes the posts. Returns the open round. `completed`: the number of completed rounds in the board's records.
  RoundNumber close(RoundNumber completed);
  void reopen() { gate_->closed.store(false); }
  /// Marks a rank's post for a round as taken. False if there is none.
  bool take(Rank local, RoundNumber round);

  // ---- any thread

  bool has_posted(Rank local, RoundNumber round) const { return at(local, round).tag.load() == posted(round); }
  /// Time of the last post; 0 if there is none.
  Seconds last_called(Rank local) const;

 private:
  using Tag = std::uint64_t;

  /// A zeroed Post is an empty place. The data follows it.
  struct Post {
    std::atomic<Tag> tag{0};
    std::atomic<Seconds> called{0};
    std::uint64_t sequence = 0;
  };
  struct Gate {
    std::atomic<bool> closed{false};
  };
  struct Found {
    alignas(64) std::atomic<RoundNumber> complete{0};
  };
  static constexpr std::size_t kPlaces = 2;
  static constexpr std::size_t kDataAt = 32;  // the first elements share the cache line of the tag

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
