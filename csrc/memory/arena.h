// One rank's memory for reductions among ranks that can reach each other's: a snapshot of what the rank gives, and room
// for a result. The same on a host and on a device.
//
//   deposit   the values are copied into the snapshot, after what the caller's stream has queued before
//   reduce    this rank's part of all snapshots is folded, in the order of slots, into the results of all
//   give      the result is copied out; what the caller's stream does afterwards comes after that
//
// The streams of one rank order its own steps, without waiting. Those of different ranks are ordered by who calls, who
// learns by messages what others have polled: a rank reduces when all have deposited, gives when all have reduced, and
// reduces again when all have been given. Memory never communicates.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "core/types.h"
#include "memory/executor.h"

namespace pyc {

class Arena {
 public:
  struct Shape {
    Elements elements;
    ReduceOp op;
    std::size_t count;
    std::size_t slots;  ///< ranks that may be attached
  };

  /// Of the rank at `slot`. Allocates all that it will ever need.
  Arena(Executor& executor, const Shape& shape, std::size_t slot);

  /// For `attach` of the others.
  SharedHandle share() { return executor_.share(memory_.get()); }
  void attach(std::size_t slot, const SharedHandle& handle) { mappings_[slot] = executor_.map(handle); }
  /// The mapping ends when the work on it is done, at the latest; see `advance`. Its owner must not free it before.
  void detach(std::size_t slot) { ending_.push_back(std::move(mappings_[slot])); }
  /// Ends mappings that no work needs any more. Whether none is left to end.
  bool advance();

  /// The caller's array may be written to by what its stream does afterwards.
  void deposit(const std::byte* values, Stream& producer);
  /// As `deposit`, to what the snapshot holds already.
  void accumulate(const std::byte* values, Stream& producer);
  /// Folds elements [first, first + length) of the snapshots of `contributors`, at least one, into the results of
  /// `members`; both in any order.
  void reduce(std::vector<std::size_t> contributors, const std::vector<std::size_t>& members, std::size_t first,
              std::size_t length);
  /// `divisor`: of an average.
  void give(std::byte* out, std::size_t divisor, Stream& consumer);

  // Polls; each throws what went wrong on the device.
  bool deposited() { return deposited_->reached(); }
  bool reduced() { return reduced_->reached(); }
  bool given() { return given_->reached(); }

 private:
  std::size_t part_bytes() const;
  std::byte* base(std::size_t slot) const { return slot == slot_ ? memory_.get() : mappings_[slot].get(); }
  std::byte* snapshot(std::size_t slot) const { return base(slot); }
  std::byte* result(std::size_t slot) const { return base(slot) + part_bytes(); }
  std::byte* scratch() const { return memory_.get() + 2 * part_bytes(); }
  /// Further work of `stream` comes after what `caller` has queued.
  void follow(Stream& stream, Stream& caller);

  Executor& executor_;
  const Shape shape_;
  const std::size_t slot_;
  ExecutorMemory memory_;                 // snapshot, result and, if elements are widened, scratch
  std::vector<ExecutorMemory> mappings_;  // by slot
  std::vector<ExecutorMemory> ending_;

  std::unique_ptr<Stream> in_;
  std::unique_ptr<Stream> work_;
  std::unique_ptr<Stream> out_;
  std::unique_ptr<Event> called_;
  std::unique_ptr<Event> deposited_;
  std::unique_ptr<Event> reduced_;
  std::unique_ptr<Event> given_;
};

}  // namespace pyc
