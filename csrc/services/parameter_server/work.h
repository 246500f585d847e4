// The work of a rank for one step or one read, in direct mode: block by block, behind earlier work. It can be left
// after any block and continued later, by another thread too. Later work sees all of it or nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <vector>

#include "services/parameter_server/ledger.h"
#include "services/parameter_server/obstacle.h"
#include "services/parameter_server/shard.h"
#include "services/parameter_server/update_rule.h"

namespace pyc::server {

/// A function that replaces the update rule, and the buffer for its gradient.
struct UpdateCall {
  Update function;
  BufferPtr gradient;
};

class Work {
 public:
  /// Construct it in the turn in which the step is decided, because later steps may move gradients. `call`: null if
  /// there is an update rule. `owner`: the worker of this rank.
  Work(Shard& shard, const Layout& layout, Step step, Pipeline::Turn& turn, const UpdateCall* call,
       std::optional<Worker> owner);
  Work(Shard& shard, const Layout& layout, Ticket ticket, std::byte* out);

  const Step& step() const { return step_; }
  const Ticket& ticket() const { return ticket_; }
  bool reads() const { return !step_.use && step_.update == 0; }
  /// Lends the caller's gradient and the destination of the new weights. Both may be null.
  void lend(const std::byte* gradient, std::byte* out);

  /// Works on at most `most` blocks, until earlier work is in the way. Returns whether all is done.
  bool advance(std::size_t most = std::numeric_limits<std::size_t>::max());
  std::size_t blocks_done() const { return block_; }
  /// Sleeps until earlier work may have advanced, at most `limit` seconds (less than one).
  void sleep(Seconds limit) { shard_.pipeline().sleep(ticket_, wanted_, limit); }
  /// The work in the way; valid while this object lives.
  Obstacle obstacle() { return behind(shard_.pipeline(), ticket_, wanted_); }
  /// The exception of the update function. Other ranks may continue.
  std::exception_ptr error() const { return error_; }

  /// Copies the rest of the caller's gradient, and stops writing to `out`.
  void leave();

 private:
  bool is_elastic() const { return layout_->options().update.rule == Rule::kElastic; }
  bool calls() const { return call_ != nullptr && step_.update != 0; }
  bool is_free();
  void write_journal();
  void use(const std::byte* gradient);
  void act(std::size_t block);
  void average(std::size_t block);
  void call();

  Shard& shard_;
  const Layout* layout_;
  Step step_;
  Ticket ticket_;
  const UpdateCall* call_ = nullptr;
  std::optional<Worker> owner_;
  bool has_journal_ = false;
  std::byte* accumulator_ = nullptr;     // of its gradient; null: the update reads the gradient where it is
  std::vector<Term> terms_;              // of the update
  std::optional<std::size_t> in_place_;  // index of the gradient's term
  const std::byte* gradient_ = nullptr;
  std::byte* out_ = nullptr;
  std::size_t block_ = 0;   // blocks done
  std::size_t free_ = 0;    // blocks that no earlier work is in the way of
  std::size_t wanted_ = 0;  // the last block that `advance` asked for
  std::exception_ptr error_;
};

}  // namespace pyc::server
