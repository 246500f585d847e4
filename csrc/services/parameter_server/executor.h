// Executes the coordinator's steps on a server's shard, in order, each as soon as its gradient has arrived. Never
// blocks. Under the engine's progress lock.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "services/parameter_server/ledger.h"
#include "services/parameter_server/shard.h"
#include "services/parameter_server/update_calls.h"

namespace pyc::server {

class Executor {
 public:
  using Ring = std::function<void(Worker)>;
  /// `shard` is the one of `rank` and outlives the executor. `calls`: null if there is an update rule.
  Executor(Shard& shard, const Layout& layout, Rank rank, Ring ring, std::shared_ptr<UpdateCalls> calls)
      : shard_(shard),
        layout_(layout),
        rank_(rank),
        ring_(std::move(ring)),
        calls_(std::move(calls)),
        keeps_journal_(layout.options().recoverable && !calls_) {
    if (layout.options().resumed) resume(*layout.options().resumed);
  }

  void add(Step step) { steps_.push_back(std::move(step)); }
  /// Executes the steps that are ready, at most kBlocksAtOnce blocks of an update. Returns whether anything changed.
  bool advance();
  bool idle() const { return steps_.empty(); }
  bool is_calling() const { return is_calling_; }

 private:
  void resume(const Resumed& resumed);
  bool claim(const Step& step);
  void grant(Step& step);
  bool take(Step& step);
  bool enter(Rank owner);
  bool begin_update(const Step& step);
  bool is_included(const Step& step);
  bool work(const Step& step);
  bool call(const Step& step);
  void end(const Step& step);
  void set_taken(const Step& step);
  void ring_for_version();

  Shard& shard_;
  const Layout& layout_;
  const Rank rank_;
  const Ring ring_;
  const std::shared_ptr<UpdateCalls> calls_;
  std::deque<Step> steps_;
  bool claimed_ = false;          // the worker of the first step executes it
  bool taken_ = false;            // the first step's gradient has been taken
  bool in_slot_ = false;          // ... and stays in its slot for the update
  std::optional<Ticket> ticket_;  // for the first step's update
  bool begun_ = false;
  bool is_calling_ = false;
  std::size_t block_ = 0;
  std::vector<Term> terms_;
  const bool keeps_journal_;
  std::vector<Part> journal_parts_;           // of `terms_`
  std::vector<Resumed::Part> parts_;          // of the shard, which took them over with pushes that may be repeated
  std::array<std::vector<bool>, 2> is_void_;  // by accumulator and worker, whether all parts include its pushes
};

}  // namespace pyc::server
