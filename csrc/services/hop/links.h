// What a worker does to its neighbors and knows of them. Whether they are of its node, and how far their news has come,
// is not its business: what it is told may be old, but numbers only grow.
#pragma once

#include "services/hop/options.h"
#include "services/hop/update_queue.h"

namespace pyc {

class HopLinks {
 public:
  virtual ~HopLinks() = default;

  /// UpdateQ(this rank), with a sender for each in-neighbor.
  virtual UpdateQueue& updates() = 0;
  /// UpdateQ(to).enqueue(values, iter, this rank). Never waits; `can_enqueue(iter)` before the first of an iteration.
  virtual void enqueue(Rank to, Iteration iter, const std::byte* values) = 0;
  /// Whether there is room to hold the updates of an iteration until receivers have taken them: always, but for a
  /// transfer to another node that has not ended since that memory was used last.
  virtual bool can_enqueue(Iteration iter) const = 0;
  /// Whether that is a transfer to `to`.
  virtual bool is_sending(Rank to, Iteration iter) const = 0;

  /// TokenQ(of -> this rank), of an out-neighbor.
  virtual Iteration tokens(Rank of) const = 0;
  virtual void remove_tokens(Rank of, Iteration tokens) = 0;
  /// TokenQ(this rank -> of), of an in-neighbor. This rank is in iteration `iter` now.
  virtual void insert_tokens(Rank of, Iteration tokens, Iteration iter) = 0;

  /// This rank is in iteration `iter` now; said before tokens are inserted.
  virtual void entered(Iteration iter) = 0;
  /// ACK of section 3.3: this rank has reduced so many iterations.
  virtual void acknowledge(Iteration iterations) = 0;

  // What a neighbor has said.
  virtual Iteration iteration(Rank of) const = 0;
  virtual Iteration reduced(Rank by) const = 0;
  /// From which iteration on it sends no updates, and takes none: it has left. kNeverIteration: it has not.
  virtual Iteration left(Rank by) const = 0;
};

}  // namespace pyc
