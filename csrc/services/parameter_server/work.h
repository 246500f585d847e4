// What a rank does in one step, on memory that it shares: block by block, behind the work before it.
//
// It can be left after any block, and gone on with later, by another thread too: nothing of it is lost, and who comes
// behind sees all of it or nothing.
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

/// A function in place of an update rule, and where it is given the gradient.
struct UpdateCall {
  Update function;
  BufferPtr gradient;
};

class Work {
 public:
  /// A step, in the turn in which it is decided: later steps may change where gradients lie. `call`: null if there is
  /// an update rule.
  Work(Shard& shard, const Layout& layout, Step step, Pipeline::Turn& turn, const UpdateCall* call);
  /// To read the weights.
  Work(Shard& shard, const Layout& layout, Ticket ticket, std::byte* out);

  const Step& step() const { return step_; }
  const Ticket& ticket() const { return ticket_; }
  bool reads() const { return !step_.use && step_.update == 0; }
  /// What the caller lends: his gradient, and where the new weights go; or null.
  void lend(const std::byte* gradient, std::byte* out);

  /// Goes on for as long as nobody is in the way, by `most` blocks. Whether it is done.
  bool advance(std::size_t most = std::numeric_limits<std::size_t>::max());
  std::size_t blocks_done() const { return block_; }
  /// Until nobody may be in the way, at most `limit` seconds (less than one).
  void sleep(Seconds limit) { shard_.pipeline().sleep(ticket_, wanted_, limit); }
  /// What it waits for; valid as long as this.
  Obstacle obstacle() { return behind(shard_.pipeline(), ticket_, wanted_); }
  /// What the function has thrown. The others may go on.
  std::exception_ptr error() const { return error_; }

  /// What is lent goes back: the rest of the gradient is copied, and no weights are given.
  void leave();

 private:
  bool is_elastic() const { return layout_->options().update.rule == Rule::kElastic; }
  bool calls() const { return call_ != nullptr && step_.update != 0; }
  bool is_free();
  void use(const std::byte* gradient);
  void act(std::size_t block);
  void average(std::size_t block);
  void call();

  Shard& shard_;
  const Layout* layout_;
  Step step_;
  Ticket ticket_;
  const UpdateCall* call_ = nullptr;
  std::byte* accumulator_ = nullptr;     // for its gradient; null: the update takes that from where it is
  std::vector<Term> terms_;              // of the update
  std::optional<std::size_t> in_place_;  // which of them is that gradient
  const std::byte* gradient_ = nullptr;
  std::byte* out_ = nullptr;
  std::size_t block_ = 0;   // all before it is done
  std::size_t free_ = 0;    // nobody is in the way before it
  std::size_t wanted_ = 0;  // that nobody shall be in the way of
  std::exception_ptr error_;
};

}  // namespace pyc::server
