// A worker's interface to its neighbors, on any node. Their numbers may be out of date, but they only grow.
#pragma once

#include "services/hop/options.h"
#include "services/hop/update_queue.h"

namespace pyc {

class HopLinks {
 public:
  virtual ~HopLinks() = default;

  /// UpdateQ(this rank), with a sender for each in-neighbor.
  virtual UpdateQueue& updates() = 0;
  /// UpdateQ(to).enqueue(values, iter, this rank). Never waits. The first of an iteration needs `can_enqueue(iter)`.
  virtual void enqueue(Rank to, Iteration iter, const std::byte* values) = 0;
  /// False only while an earlier transfer to another node still uses the memory for updates of this iteration.
  virtual bool can_enqueue(Iteration iter) const = 0;
  /// Whether that transfer is to `to`.
  virtual bool is_sending(Rank to, Iteration iter) const = 0;

  /// Size of TokenQ(of -> this rank), of an out-neighbor.
  virtual Iteration tokens(Rank of) const = 0;
  virtual void remove_tokens(Rank of, Iteration tokens) = 0;
  /// Into TokenQ(this rank -> of), of an in-neighbor. This rank is in iteration `iter` now.
  virtual void insert_tokens(Rank of, Iteration tokens, Iteration iter) = 0;

  /// Called before tokens are inserted.
  virtual void entered(Iteration iter) = 0;
  /// ACK of section 3.3.
  virtual void acknowledge(Iteration iterations) = 0;

  // Numbers that a neighbor has announced.
  virtual Iteration iteration(Rank of) const = 0;
  virtual Iteration reduced(Rank by) const = 0;
  /// First iteration in which the rank neither sends nor takes updates, if it has left; otherwise kNeverIteration.
  virtual Iteration left(Rank by) const = 0;
};

}  // namespace pyc
