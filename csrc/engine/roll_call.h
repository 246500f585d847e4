// Asks every rank how far it has come: for the text of a StallError, hence only when something is wrong already.
//
// Not along the tree: a rank that is stopped would hide all that are below it, and who is missing must be named
// exactly. An engine answers by itself, so who does not answer soon is stopped or gone, or is not driven.
#pragma once

#include <cstdint>
#include <vector>

#include "core/rank_set.h"
#include "core/types.h"
#include "engine/control.h"

namespace pyc {

class RollCall {
 public:
  /// How far a rank has come.
  struct Progress {
    std::uint64_t steps = 0;  // of the bootstrap, begun
    bool closed = false;      // by close()
  };

  RollCall(Rank rank, Rank size, SendControl send) : rank_(rank), size_(size), send_(std::move(send)) {}

  /// Asks all other ranks which of them have begun a step of the bootstrap, or, with step 0, have closed.
  void ask(std::uint64_t step);
  bool all_answered() const { return answered_.count() + 1 == size_; }
  /// The other ranks that have not come that far, or do not answer; ascending.
  std::vector<Rank> missing() const;

  void on_inquiry(Rank from, ConstBytes message, const Progress& own);
  void on_answer(Rank from, ConstBytes message);

 private:
  struct Message {
    MessageHeader header;
    std::uint64_t call;  // of the asking rank
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
