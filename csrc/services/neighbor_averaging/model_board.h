// Who may work on which part of which model, in memory that the ranks of a node share: whoever averages two of them
// does so itself.
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
// Where models are on devices, what the application calls may throw DeviceError. Averages note it instead, and do
// nothing from then on.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "node/process.h"
#include "node/timed_mutex.h"
#include "services/neighbor_averaging/models.h"

namespace pyc {

class ModelBoard {
 public:
  /// Of one rank's memory.
  static std::size_t bytes(const ModelShape& shape);

  /// Of the rank at `local`, among those whose memories these are: zeroed, aligned to a page. Makes its own, which
  /// others may use once all have been made.
  ModelBoard(Models& models, const ModelShape& shape, std::vector<std::shared_ptr<std::byte>> memories,
             std::size_t local);

  std::size_t local_rank() const { return local_; }
  std::size_t segments() const { return shape_.segments(); }
  const ModelShape& shape() const { return shape_; }

  // ---- this rank's model, as in models.h, of any elements. These wait for the lock of a segment, and call
  // `while_waiting` now and then.

  using WhileWaiting = std::function<void()>;
  /// Elements [first, first + count) into `out`.
  void read(Elements as, std::size_t first, std::size_t count, std::byte* out, const WhileWaiting& while_waiting);
  void apply(Elements as, std::size_t first, std::size_t count, const std::byte* delta, double factor,
             const WhileWaiting& while_waiting);
  void assign(Elements as, std::size_t count, const std::byte* values);

  void read_kept(std::size_t count, std::byte* out, const WhileWaiting& while_waiting);
  void replace(std::size_t count, const std::byte* before, const std::byte* values, const WhileWaiting& while_waiting);
  void exchange(std::size_t first, std::size_t count, std::byte* numbers, const WhileWaiting& while_waiting);

  /// How long these have waited for locks.
  std::uint64_t waited_ns() const { return waited_ns_.load(std::memory_order_relaxed); }

  // ---- averages

  enum class Outcome : std::uint8_t { kAveraged, kLent, kLocked, kFailed };
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
  /// Whether its device has failed, and what it said.
  bool has_failed(std::size_t local) const { return head(local).has_failed.load(std::memory_order_acquire); }
  std::string failure(std::size_t local) const { return head(local).failure.data(); }
  /// That this rank's has. The first text counts.
  void note_failure(const std::string& text);

 private:
  static constexpr std::size_t kLongestText = 240;

  struct alignas(64) Head {
    std::atomic<std::uint64_t> averages{0};
    ProcessId process;
    std::atomic<bool> has_left{false};
    std::atomic<bool> has_failed{false};
    std::atomic<bool> is_failing{false};  // a thread writes the text
    std::array<char, kLongestText> failure{};
  };
  struct alignas(64) Segment {
    TimedMutex mutex;
    bool lent = false;
  };

  Head& head(std::size_t local) const { return *reinterpret_cast<Head*>(memories_[local].get()); }
  Segment& segment(std::size_t local, std::size_t number) const;
  ModelRange range(std::size_t segment) const;
  std::size_t offset_in(std::size_t first_segment, std::size_t segment) const;
  bool lock_all(std::size_t first_segment, std::size_t end_segment);
  void unlock_all(std::size_t first_segment, std::size_t end_segment);

  void wait_for(TimedMutex& mutex, const WhileWaiting& while_waiting);
  /// Calls `action(range)` for each segment of these elements, under its lock.
  template <class Action>
  void under_locks(std::size_t first, std::size_t count, const WhileWaiting& while_waiting, Action action);
  /// Notes what the work throws of the device. Whether it did not, nor any work before.
  template <class Work>
  bool try_to(Work work);

  Models& models_;
  const ModelShape shape_;
  const std::size_t width_;                                 // bytes of an element
  const std::vector<std::shared_ptr<std::byte>> memories_;  // by local rank: head, segments
  const std::size_t local_;
  std::atomic<std::uint64_t> waited_ns_{0};
};

}  // namespace pyc
