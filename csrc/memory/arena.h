// One rank's memory for reductions among ranks that can reach each other's: buffers of one length, each for what the
// rank gives, or for what was made of that of several ranks. The same on a host and on a device.
//
//   deposit   values are copied into a buffer, after what the caller's stream has queued before
//   fold      a part of several buffers, of any ranks, is folded into one
//   give      a buffer is copied out; what the caller's stream does afterwards comes after that
//
// Each is queued, and polled for. Nothing here orders one after another: who calls uses a buffer for something else
// when it has polled, or was told by who has polled, that the work on it is done. Memory never communicates.
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
    std::size_t count;    ///< elements of a buffer
    std::size_t slots;    ///< ranks that may be attached
    std::size_t buffers;  ///< of each
  };
  /// A buffer of a rank that is attached, or of this one.
  struct Place {
    std::size_t slot;
    std::size_t buffer;
  };

  /// Of the rank at `slot`. Allocates all that it will ever need.
  Arena(Executor& executor, const Shape& shape, std::size_t slot);

  const Shape& shape() const { return shape_; }

  /// For `attach` of the others.
  SharedHandle share() { return executor_.share(memory_.get()); }
  void attach(std::size_t slot, const SharedHandle& handle) { mappings_[slot] = executor_.map(handle); }
  /// When no work on that memory is left. Its owner must not free it before.
  void detach(std::size_t slot) { mappings_[slot].reset(); }
  /// Leaves all memory as it is for good: others have it mapped, or work is under way.
  void abandon();

  /// The caller's array may be written to by what its stream does afterwards.
  void deposit(std::size_t buffer, const std::byte* values, Stream& producer);
  /// As `deposit`, to what the buffer holds already.
  void accumulate(std::size_t buffer, const std::byte* values, Stream& producer);
  /// Folds elements [first, first + length) of `inputs`, at least one, in that order.
  void fold(const std::vector<Place>& inputs, const Place& output, std::size_t first, std::size_t length);
  /// `divisor`: of an average.
  void give(const Place& from, std::byte* out, std::size_t divisor, Stream& consumer);

  // Whether all of a kind that was queued is done. Each throws what went wrong on the device.
  bool deposited() { return deposited_->reached(); }
  bool folded() { return folded_->reached(); }
  bool given() { return given_->reached(); }
  /// From now on they tell of all that was ever queued.
  void mark();

 private:
  std::size_t buffer_bytes() const;
  std::byte* at(const Place& place) const;
  std::byte* own(std::size_t buffer) const { return at({slot_, buffer}); }
  std::byte* scratch() const { return own(shape_.buffers); }
  /// Further work of `stream` comes after what `caller` has queued.
  void follow(Stream& stream, Stream& caller);

  Executor& executor_;
  const Shape shape_;
  const std::size_t slot_;
  ExecutorMemory memory_;                 // the buffers and, if elements are widened, one more
  std::vector<ExecutorMemory> mappings_;  // by slot

  std::unique_ptr<Stream> in_;
  std::unique_ptr<Stream> work_;
  std::unique_ptr<Stream> out_;
  std::unique_ptr<Event> called_;
  std::unique_ptr<Event> deposited_;
  std::unique_ptr<Event> folded_;
  std::unique_ptr<Event> given_;
};

}  // namespace pyc
