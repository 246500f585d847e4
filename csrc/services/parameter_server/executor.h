// A server's hands: it makes the steps that the coordinator has decided, in that order, each as soon as the gradients
// that it needs have come. It never waits: what cannot be done now is done later. Under the engine's progress lock.
#pragma once

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
  /// Wakes a worker that may wait for what has been done.
  using Ring = std::function<void(Worker)>;
  /// Of the shard of `rank`, which outlives this.
  /// `calls`: null if there is an update rule.
  Executor(Shard& shard, const Layout& layout, Rank rank, Ring ring, std::shared_ptr<UpdateCalls> calls)
      : shard_(shard), layout_(layout), rank_(rank), ring_(std::move(ring)), calls_(std::move(calls)) {}

  void add(Step step) { steps_.push_back(std::move(step)); }
  /// Does what can be done, for some milliseconds at most. Whether it did anything.
  bool advance();
  bool idle() const { return steps_.empty(); }
  /// A function is being called: whoever calls it says when it is done.
  bool is_calling() const { return is_calling_; }

 private:
  bool claim(const Step& step);
  void grant(const Step& step);
  bool take(const Step& step);
  bool enter(Rank owner);
  bool begin_update(const Step& step);
  bool work(const Step& step);
  bool call();
  void end(const Step& step);
  void set_taken(const Step& step);
  void ring_for_version();

  Shard& shard_;
  const Layout& layout_;
  const Rank rank_;
  const Ring ring_;
  const std::shared_ptr<UpdateCalls> calls_;
  std::deque<Step> steps_;
  bool claimed_ = false;          // the first step is its worker's
  bool taken_ = false;            // the gradient of the first step
  bool in_slot_ = false;          // ... which the update finds there
  std::optional<Ticket> ticket_;  // of its update
  bool begun_ = false;
  bool is_calling_ = false;
  std::size_t block_ = 0;
  std::vector<Term> terms_;
};

}  // namespace pyc::server
