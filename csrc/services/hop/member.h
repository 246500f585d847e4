// One rank's part in queues that join ranks in a graph: its node's memory, its edges to other nodes, what neighbors say
// of themselves, how a call waits for them, and the end. What calls do is that of derived classes.
//
// A rank that leaves takes part in no iteration whose update it has not sent; its neighbors go on without it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/nodes.h"
#include "engine/collective.h"
#include "engine/engine.h"
#include "node/shared_memory.h"
#include "services/common/creation.h"
#include "services/common/node_memory.h"
#include "services/hop/awaited.h"
#include "services/hop/board.h"
#include "services/hop/edges.h"
#include "services/hop/messages.h"
#include "services/hop/options.h"

namespace pyc {

class HopMember : public Collective {
 public:
  /// Leaves for good. The engine brings to others what they have been offered.
  void close();

  bool closed() const { return closed_; }
  const HopOptions& options() const { return options_; }
  /// Updates in this rank's queue.
  std::size_t queued() const;
  /// Of this rank's queues, and of what it keeps for other nodes.
  std::size_t memory_bytes() const { return HopBoard::bytes_of_rank(options_, rank()) + edges_->bytes(); }
  /// How often ranks of its node have woken this one, or would have if it had slept.
  std::uint32_t rings() const { return board_->rings(); }

  // ---- Collective

  bool advance() override;
  void on_message(Rank from, ConstBytes message) override;
  bool busy() const override { return !edges_->empty() && (!edges_->idle() || in_call_); }
  bool in_background() const override { return !edges_->empty(); }  // neighbors may offer at any time
  Seconds deadline() const override { return kNever; }
  bool finished() const override { return not_closed().empty() && edges_->idle(); }
  const std::string& name() const override { return options_.name; }
  void abort() override { leave(); }
  std::vector<Rank> not_closed() const override;
  void name_the_dead() const override { check_alive(); }
  bool has_waiting(Rank rank) const override { return rank == engine_->rank() && in_call_; }

 protected:
  /// `kind`: for messages.
  HopMember(Engine& engine, Memory& memory, HopOptions options, const Nodes& nodes, const char* kind);

  /// Collective over the engine's ranks: the memory of its node, and its enrolment. What `Kind::prepare` throws on one
  /// rank is a std::runtime_error on all. The result keeps the engine alive.
  template <class Kind>
  static std::shared_ptr<Kind> created(std::shared_ptr<Engine> engine, std::shared_ptr<Kind> made, Seconds timeout,
                                       const Engine::Interrupt& interrupt);
  /// The same where all ranks are in one thread.
  template <class Kind>
  static std::shared_ptr<Kind> joined(std::shared_ptr<Engine> engine, std::shared_ptr<Kind> made,
                                      const std::shared_ptr<SharedMemory>& shared);

  /// What the engine makes of an update that a rank of another node offers. Under the engine's progress lock.
  virtual HopEdges::Answer answer(Rank to, Iteration iter) const = 0;
  /// Whom the application's call waits for.
  virtual std::vector<HopAwaited> awaited() const = 0;

  /// A rank of another node has taken tokens out of this rank's queue for it. Under the engine's progress lock.
  virtual void on_removed(Iteration) {}

  // ---- the neighbors

  Rank rank() const { return engine_->rank(); }
  bool is_local(Rank of) const { return nodes_.of(of) == nodes_.of(rank()); }
  const HopStanding& standing(Rank of) const { return is_local(of) ? board_->standing(of) : remote(of).standing; }
  HopStanding& own_standing() const { return board_->standing(rank()); }
  bool has_left(Rank of) const { return standing(of).left.load() != kNeverIteration; }
  /// TokenQ(of -> this rank).
  TokenQueue tokens_from(Rank of) const;
  hop::Messages mailbox() const { return {*engine_, id_}; }
  TraceTrack track() const { return engine_->trace_of(id_); }
  /// Into TokenQ(this rank -> to). This rank is in iteration `iter` now.
  void give_tokens(Rank to, Iteration tokens, Iteration iter);
  /// Into UpdateQ(to), at once or by an offer.
  void send_update(Rank to, Iteration iter, const std::byte* values);

  // ---- the application

  void check_open() const;
  /// `act` does what can be done; whether that is all. Once it is, it is asked again and does nothing.
  void wait_for(const std::string& what, const std::function<bool()>& act, Seconds timeout,
                const Engine::Interrupt& interrupt);

  Engine* const engine_;  // owns this
  Memory& memory_;
  const HopOptions options_;
  std::unique_ptr<HopBoard> board_;
  std::unique_ptr<HopEdges> edges_;
  std::atomic<Iteration> sent_{0};  // it has sent the updates of iterations below this one

 private:
  /// A neighbor on another node, as far as its messages say.
  struct Remote {
    HopStanding standing;
    TokenQueue::Counters tokens;  // of TokenQ(it -> this rank)
  };

  void make_board(const std::shared_ptr<SharedMemory>& shared);
  void set_id(std::uint32_t id);
  Remote& remote(Rank of) const { return *remotes_.at(of); }
  void leave();

  bool sleep(Seconds limit, const std::function<bool()>& done);
  void check_alive() const;
  Report own_report(const hop::Inquiry& inquiry) const;
  std::string text_of_awaited() const;
  void inquire(const HopAwaited& of);
  std::string explain(const std::string& what, Seconds waited, const std::function<bool()>& done,
                      const Engine::Interrupt& interrupt);

  const Nodes nodes_;
  const std::string kind_;
  const std::vector<Rank> neighbors_;
  std::uint32_t id_ = 0;  // set before the first call
  std::unordered_map<Rank, std::unique_ptr<Remote>> remotes_;

  std::vector<Report> reports_;       // by rank, to the newest inquiry
  std::atomic<Seconds> called_{0.0};  // when the application called last
  std::atomic<bool> in_call_{false};
  std::atomic<bool> closed_{false};
};

template <class Kind>
std::shared_ptr<Kind> HopMember::created(std::shared_ptr<Engine> engine, std::shared_ptr<Kind> made, Seconds timeout,
                                         const Engine::Interrupt& interrupt) {
  HopMember& m = *made;
  Engine& e = *engine;
  share_memory(
      e, m.nodes_, HopBoard::bytes(m.options_, m.nodes_, e.rank()), "the memory of '" + m.name() + "'",
      [&](const std::shared_ptr<SharedMemory>& shared) { m.make_board(shared); }, timeout, interrupt);
  return enroll(std::move(engine), std::move(made), [&](std::uint32_t id) { m.set_id(id); });
}

template <class Kind>
std::shared_ptr<Kind> HopMember::joined(std::shared_ptr<Engine> engine, std::shared_ptr<Kind> made,
                                        const std::shared_ptr<SharedMemory>& shared) {
  HopMember& m = *made;
  m.make_board(shared);
  return enroll(std::move(engine), std::move(made), [&](std::uint32_t id) { m.set_id(id); });
}

}  // namespace pyc
