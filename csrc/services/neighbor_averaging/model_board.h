// Coordinates access to the models of a node's ranks, in shared memory. A rank averages two of them itself.
//
// A model is cut into *segments*, each with a lock. Two models are averaged segment by segment, under both locks, which
// are taken in the order of ranks. Thus a sleeping, computing or stopped rank takes no part, and `read` and `apply`
// wait for at most one segment at a time.
//
// The average of a segment is atomic. It multiplies the ranks' values of an element by AD-PSGD's doubly stochastic
// matrix (section 3.2), whatever happens to other segments. The analysis (section 4) bounds squared norms, which are
// sums over elements. It requires doubly stochastic matrices drawn independently of the gradients, but not that all
// elements are averaged at the same time.
//
// A segment can be *lent*: its values travel to another node, and a step to subtract comes back. Until then it is not
// averaged, and changes applied to it stay.
//
// With models on devices, the application's calls may throw DeviceError. Averages note the error instead, and then
// stop.
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
  static std::size_t bytes(const ModelShape& shape);

  /// For the rank at `local`. `memories`: of all ranks of the node, zeroed, page-aligned. Initializes this rank's own;
  /// others may use it once all boards exist.
  ModelBoard(Models& models, const ModelShape& shape, std::vector<std::shared_ptr<std::byte>> memories,
             std::size_t local);

  std::size_t local_rank() const { return local_; }
  std::size_t segments() const { return shape_.segments(); }
  const ModelShape& shape() const { return shape_; }

  // ---- this rank's model, in elements of any type (models.h). While these wait for a segment's lock, they call
  // `while_waiting` repeatedly.

  using WhileWaiting = std::function<void()>;
  void read(Elements as, std::size_t first, std::size_t count, std::byte* out, const WhileWaiting& while_waiting);
  void apply(Elements as, std::size_t first, std::size_t count, const std::byte* delta, double factor,
             const WhileWaiting& while_waiting);
  void assign(Elements as, std::size_t count, const std::byte* values);

  void read_kept(std::size_t count, std::byte* out, const WhileWaiting& while_waiting);
  void replace(std::size_t count, const std::byte* before, const std::byte* values, const WhileWaiting& while_waiting);
  void exchange(std::size_t first, std::size_t count, std::byte* numbers, const WhileWaiting& while_waiting);

  std::uint64_t waited_ns() const { return waited_ns_.load(std::memory_order_relaxed); }

  // ---- averages

  enum class Outcome : std::uint8_t { kAveraged, kLent, kLocked, kFailed };
  /// Averages a segment of this rank's model with another rank's. kLocked: a lock was not free soon.
  Outcome average(std::size_t other, std::size_t segment);

  /// Copies segments to `values` and marks them as lent. Returns false if one is locked, and lends none, or if the
  /// device has failed.
  bool lend(std::size_t first_segment, std::size_t end_segment, std::byte* values);
  /// Ends the loan, and subtracts `step` unless it is null. Returns false if a segment is locked; call it again then.
  bool take_back(std::size_t first_segment, std::size_t end_segment, const std::byte* step);
  /// Averages segments with another rank's lent values, which become the step to subtract from them. Returns false if
  /// one is locked, and changes nothing, or if the device has failed.
  bool meet(std::size_t first_segment, std::size_t end_segment, std::byte* values);

  // ---- state of ranks, by local rank

  void leave() { head(local_).has_left = true; }
  bool has_left(std::size_t local) const { return head(local).has_left; }
  const ProcessId& process(std::size_t local) const { return head(local).process; }
  /// Averages that the rank's model was in.
  void count_average(std::size_t local) { head(local).averages.fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t averages(std::size_t local) const { return head(local).averages.load(std::memory_order_relaxed); }
  /// Whether the rank's device has failed, and its error message.
  bool has_failed(std::size_t local) const { return head(local).has_failed.load(std::memory_order_acquire); }
  std::string failure(std::size_t local) const { return head(local).failure.data(); }
  /// For this rank. Only the first text is kept.
  void note_failure(const std::string& text);

 private:
  static constexpr std::size_t kLongestText = 240;

  struct alignas(64) Head {
    std::atomic<std::uint64_t> averages{0};
    ProcessId process;
    std::atomic<bool> has_left{false};
    std::atomic<bool> has_failed{false};
    std::atomic<bool> is_failing{false};  // a thread is writing `failure`
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
  /// Calls `action(range)` for each segment of the elements, under its lock.
  template <class Action>
  void under_locks(std::size_t first, std::size_t count, const WhileWaiting& while_waiting, Action action);
  /// Does the work unless the device has failed, and notes a DeviceError. Returns whether the work succeeded.
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
