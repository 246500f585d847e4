// Asks every rank for its progress. It is for the text of a StallError, so it runs only when something is wrong.
//
// Ranks are asked directly: along a tree, a stopped rank would hide its subtree, and the text must name the missing
// ranks exactly. Engines answer by themselves, so a rank that does not answer soon is stopped, gone or not driven.
#pragma once

#include <cstdint>
#include <vector>

#include "core/rank_set.h"
#include "core/types.h"
#include "engine/control.h"

namespace pyc {

class RollCall {
 public:
  struct Progress {
    std::uint64_t steps = 0;  // begun steps of the bootstrap
    bool closed = false;      // by close()
  };

  RollCall(Rank rank, Rank size, SendControl send) : rank_(rank), size_(size), send_(std::move(send)) {}

  /// Asks all other ranks whether they have begun a step of the bootstrap or, for step 0, have closed.
  void ask(std::uint64_t step);
  bool all_answered() const { return answered_.count() + 1 == size_; }
  /// The other ranks that have not, or that do not answer; ascending.
  std::vector<Rank> missing() const;

  void on_inquiry(Rank from, ConstBytes message, const Progress& own);
  void on_answer(Rank from, ConstBytes message);

 private:
  struct Message {
    MessageHeader header;
    std::uint64_t call;  // counted by the asking rank
    std::uint64_t steps;
    std::uint64_t closed;
  };

  Rank rank_;
  Rank size_;
  SendControl send_;
  std::uint64_t call_ = 0;
  std::uint64_t step_ = 0;
  RankSet answered_;
  RankSet come_;
};

}  // namespace pyc
