// The models of a node's ranks, in memory that they share: whoever averages two of them does so itself.
//
// A model is cut into *segments*, each under a lock of its own. To average two models is to average segment after
// segment, under both locks, which are taken in the order of ranks. So a rank that sleeps, computes or is stopped takes
// no part, and `read` and `apply` wait at most for one segment.
//
// Each segment's average is atomic. For one element the ranks' values are multiplied by a doubly stochastic matrix, the
// one of AD-PSGD (section 3.2), whatever happens to other segments meanwhile. The analysis (section 4) is a bound on
// squared norms, hence a sum over elements, and asks of the matrices that they are doubly stochastic and drawn
// independently of the gradients; it does not ask that all elements of a model are averaged at the same time.
//
// A segment may be *lent*: its values are on their way to another node, and what comes back is the step to take from
// them. Until then nobody averages it. What is applied meanwhile stays in it.
//
// A second model x~ beside each serves A2CiD2 (Nabli, Belilovsky, Oyallon 2023): before each average the two are mixed,
// exp(-2 eta) of their difference is kept, and an average moves x~ by alpha of the difference instead of half of it.
// Ranks mix at different moments, so what is kept is the sum over ranks of x + x~.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "memory/memory.h"
#include "node/process.h"
#include "node/timed_mutex.h"

namespace pyc {

/// Of A2CiD2, sections 3.1 and 3.3.
struct Acceleration {
  double kept = 1;   ///< of x - x~ from one average to the next
  double alpha = 0;  ///< of the difference to the neighbor, for x~
};

class ModelBoard {
 public:
  struct Shape {
    std::size_t count;          ///< elements of a model
    DataType type;              ///< float32 or float64
    std::size_t segment_count;  ///< elements of a segment, the last of which may be shorter
    std::optional<Acceleration> acceleration;
  };

  /// Bytes of one rank's memory.
  static std::size_t bytes(const Shape& shape);

  /// Of the rank at `local`, among those whose memories these are: zeroed, aligned to a page. Makes its own, which
  /// others may use once all have been made.
  ModelBoard(Memory& memory, const Shape& shape, std::vector<std::shared_ptr<std::byte>> memories, std::size_t local);

  std::size_t ranks() const { return memories_.size(); }
  std::size_t local_rank() const { return local_; }
  std::size_t segments() const { return (shape_.count + shape_.segment_count - 1) / shape_.segment_count; }
  const Shape& shape() const { return shape_; }

  // ---- this rank's model; these wait for the lock of a segment, and call `while_waiting` now and then. Arrays hold
  // elements of `as.type`, or where nothing is said those that the model is held in.

  using WhileWaiting = std::function<void()>;
  /// Elements [first, first + count) into `out`.
  void read(Elements as, std::size_t first, std::size_t count, std::byte* out, const WhileWaiting& while_waiting);
  /// The same of what averages keep the sum of: of (x + x~) / 2, where there are two models.
  void read_kept(std::size_t first, std::size_t count, std::byte* out, const WhileWaiting& while_waiting);
  /// model += factor * delta, of both models.
  void apply(Elements as, std::size_t first, std::size_t count, const std::byte* delta, double factor,
             const WhileWaiting& while_waiting);
  /// model = values, of both models.
  void assign(std::size_t first, std::size_t count, const std::byte* values, const WhileWaiting& while_waiting);
  /// The same of the first elements, and what has been added to them since `read_kept` gave `before` stays added.
  void replace(std::size_t count, const std::byte* before, const std::byte* values, const WhileWaiting& while_waiting);

  /// How long these have waited for locks.
  std::uint64_t waited_ns() const { return waited_ns_.load(std::memory_order_relaxed); }

  // ---- averages

  enum class Outcome : std::uint8_t { kAveraged, kLent, kLocked };
  /// Averages a segment of this rank's model and of another's. kLocked: a lock could not be had at once.
  Outcome average(std::size_t other, std::size_t segment);

  /// Lends segments, which become `values`. False if one is locked; then none is lent.
  bool lend(std::size_t first_segment, std::size_t end_segment, std::byte* values);
  /// Ends that. `step`: what is subtracted from the segments; null: nothing. False if one is locked: to be called
  /// again.
  bool take_back(std::size_t first_segment, std::size_t end_segment, const std::byte* step);
  /// Averages segments with values that another rank has lent, which become the step that it is to take. False if one
  /// is locked; then nothing has happened.
  bool meet(std::size_t first_segment, std::size_t end_segment, std::byte* values);

  // ---- of ranks

  void leave() { head(local_).has_left = true; }
  bool has_left(std::size_t local) const { return head(local).has_left; }
  const ProcessId& process(std::size_t local) const { return head(local).process; }
  /// In how many averages its model has been.
  void count_average(std::size_t local) { head(local).averages.fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t averages(std::size_t local) const { return head(local).averages.load(std::memory_order_relaxed); }

 private:
  struct alignas(64) Head {
    std::atomic<std::uint64_t> averages{0};
    ProcessId process;
    std::atomic<bool> has_left{false};
  };
  struct alignas(64) Segment {
    TimedMutex mutex;
    bool lent = false;
  };
  struct Range {
    std::size_t first;
    std::size_t count;
  };

  static std::size_t bytes_before_values(const Shape& shape);
  static std::size_t bytes_of_values(const Shape& shape);

  Head& head(std::size_t local) const { return *reinterpret_cast<Head*>(memories_[local].get()); }
  Segment& segment(std::size_t local, std::size_t number) const;
  Range range(std::size_t segment) const;
  std::byte* model(std::size_t local, std::size_t element) const;
  std::byte* second_model(std::size_t local, std::size_t element) const;
  void copy_kept(std::size_t first, std::size_t count, std::byte* out) const;
  void add_to_both(std::size_t element, const std::byte* delta, std::size_t count, double factor);
  void mix(std::size_t local, const Range& range);
  void average_both(std::size_t other, const Range& range);
  bool lock_all(std::size_t first_segment, std::size_t end_segment);
  void unlock_all(std::size_t first_segment, std::size_t end_segment);

  /// Calls `action(range)` for each segment of these elements, under its lock.
  void wait_for(TimedMutex& mutex, const WhileWaiting& while_waiting);
  template <class Action>
  void under_locks(std::size_t first, std::size_t count, const WhileWaiting& while_waiting, Action action);

  Memory& memory_;
  const Shape shape_;
  const Acceleration acceleration_;  // if there is one
  const Elements held_;
  const std::size_t width_;                                 // bytes of an element
  const std::vector<std::shared_ptr<std::byte>> memories_;  // by local rank: head, segments, model, second model
  const std::size_t local_;
  BufferPtr scratch_;  // of a block
  std::atomic<std::uint64_t> waited_ns_{0};
};

}  // namespace pyc
