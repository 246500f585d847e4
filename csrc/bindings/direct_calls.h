// `allreduce` on a communicator that continues after deaths, without a Python frame around it.
//
// Python keeps the contributions that no completed round contains (partial_allreduce/recovery.py). A frame costs 10 us
// and more with cold caches, so that it would double the time of a call. While Python keeps nothing and no rank has
// died, calls are direct, and the copies of late contributions are kept here until Python ends it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
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
    bool is_open;                // the call was interrupted
    std::shared_ptr<Call> call;  // of an open one; null if the death came during the handover
  };

  /// A call in progress. Constructed under the GIL.
  class Use {
   public:
    PYC_HOT explicit Use(DirectCalls& calls) : calls_(calls), is_direct_(calls.is_on_ && !calls.in_use_) {
      if (!is_direct_) return;
      calls_.user_ = std::this_thread::get_id();
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

  /// Afterwards `allreduce` calls `fallback(x, out, timeout, stream, interrupted)` unless calls are direct.
  void set_fallback(py::object fallback) { fallback_ = std::move(fallback); }
  const py::object& fallback() const { return fallback_; }

  void begin() { is_on_ = true; }
  /// Returns the kept contributions. Another thread's call is refused, or with `waits` this waits for its end.
  std::vector<Kept> end(bool waits, const std::string& name);

  PYC_HOT bool keeps() const { return !kept_.empty(); }
  void keep(Kept kept) { kept_.push_back(std::move(kept)); }
  void keep_only(Kept kept) {
    kept_.clear();
    keep(std::move(kept));
  }
  /// Drops the contributions that a completed round contains.
  void forget(std::uint64_t delivered) {
    std::erase_if(kept_, [delivered](const Kept& kept) { return kept.number <= delivered; });
  }
  void interrupt() { is_on_ = false; }

 private:
  py::object fallback_;
  bool is_on_ = false;  // under the GIL
  std::atomic<bool> in_use_{false};
  std::thread::id user_;
  std::vector<Kept> kept_;
};

}  // namespace pyc
