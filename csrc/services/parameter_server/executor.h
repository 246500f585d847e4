// A server's hands: it makes the steps that the coordinator has decided, in that order, each as soon as the gradients
// that it needs have come. It never waits: what cannot be done now is done later. Under the engine's progress lock.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "services/parameter_server/ledger.h"
#include "services/parameter_server/shard.h"

namespace pyc::server {

class Executor {
 public:
  /// Of the shard of `rank`, which outlives this.
  Executor(Shard& shard, const Layout& layout, Rank rank) : shard_(shard), layout_(layout), rank_(rank) {}

  void add(Step step) { steps_.push_back(std::move(step)); }
  /// Does what can be done, for some milliseconds at most. Whether it did anything.
  bool advance();
  bool idle() const { return steps_.empty(); }

 private:
  bool take(const Step& step);
  bool begin_update(const Step& step);
  bool work(const Step& step);
  void end(const Step& step);

  Shard& shard_;
  const Layout& layout_;
  const Rank rank_;
  std::deque<Step> steps_;
  bool taken_ = false;    // the gradient of the first step
  bool in_slot_ = false;  // ... which the update finds there
  std::optional<Ticket> ticket_;
  std::size_t block_ = 0;
  std::vector<Term> terms_;
};

}  // namespace pyc::server
