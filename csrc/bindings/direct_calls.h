// `allreduce` on a communicator that continues after deaths, without a Python frame around it.
//
// Python keeps the contributions that no completed round contains (partial_allreduce/recovery.py). A frame costs 10 us
// and more with cold caches, so that it would double the time of a call. While Python keeps nothing and no rank has
// died, calls are direct, and the copies of late contributions are kept here until Python ends it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "core/hot.h"
#include "services/partial_allreduce/partial_allreduce.h"

namespace pyc {

class DirectCalls {
 public:
  struct Kept {
    std::uint64_t number;        // of the contribution, from 1
    py::object values;           // an array
    bool is_open = false;        // the call was interrupted
    bool has_died = false;       // ... by a death
    std::shared_ptr<Call> call;  // of an open one; null if the death came during the handover
  };

  /// A call in progress. Constructed under the GIL.
  class Use {
   public:
    PYC_HOT explicit Use(DirectCalls& calls) : calls_(calls), is_direct_(calls.is_on_ && !calls.in_use_) {
      if (!is_direct_) return;
      calls_.user_ = PyThread_get_thread_ident();
      calls_.in_use_ = true;
    }
    ~Use() {
      if (is_direct_) calls_.in_use_ = false;
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    bool is_direct() const { return is_direct_; }

   private:
    DirectCalls& calls_;
    const bool is_direct_;
  };

  /// Afterwards `allreduce` calls `fallback(x, out, timeout, stream, dead)` unless calls are direct. `dead`: the ranks
  /// that died in a direct call, or None.
  void set_fallback(py::object fallback) { fallback_ = std::move(fallback); }
  const py::object& fallback() const { return fallback_; }

  void begin() { is_on_ = true; }
  /// Returns the kept contributions. std::runtime_error if a call is in progress; with `waits` this waits for its end,
  /// unless it is below this one on the stack.
  std::deque<Kept> end(bool waits, const std::string& name);

  /// The thread of the newest direct call, as Python's threading.get_ident().
  std::uint64_t user() const { return user_; }

  void keep(Kept kept) { kept_.push_back(std::move(kept)); }
  /// Whether enough are kept to ask the engine which of them completed rounds contain.
  PYC_HOT bool is_lookup_due() const { return kept_.size() > kept_after_lookup_ + kKeptBetweenLookups; }
  PYC_HOT void forget_all() {
    if (!kept_.empty()) forget(kept_.back().number);
  }
  /// Drops the contributions that a completed round contains. Their arrays are used again, since the first access to
  /// new memory costs more than the copy.
  void forget(std::uint64_t delivered) {
    while (!kept_.empty() && kept_.front().number <= delivered) {
      spare_.push_back(std::move(kept_.front().values));
      kept_.pop_front();
    }
    kept_after_lookup_ = kept_.size();
  }
  /// Returns an array for a copy, or null.
  py::object take_spare() {
    if (spare_.empty()) return {};
    py::object array = std::move(spare_.back());
    spare_.pop_back();
    return array;
  }
  void interrupt() { is_on_ = false; }

 private:
  static constexpr std::size_t kKeptBetweenLookups = 4;

  py::object fallback_;
  bool is_on_ = false;  // under the GIL
  std::atomic<bool> in_use_{false};
  std::uint64_t user_ = 0;
  std::deque<Kept> kept_;  // ascending
  std::size_t kept_after_lookup_ = 0;
  std::vector<py::object> spare_;
};

}  // namespace pyc
