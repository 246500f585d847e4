// A parameter server as one rank sees it: what workers call, how a call waits, and the end. Where the weights are and
// who updates them is that of derived classes: servers serve (Served), or whoever pushes updates them (Direct).
//
// One thread of the application at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/nodes.h"
#include "engine/collective.h"
#include "engine/engine.h"
#include "memory/memory.h"
#include "node/shared_memory.h"
#include "services/parameter_server/board.h"
#include "services/parameter_server/layout.h"
#include "services/parameter_server/ledger.h"
#include "services/parameter_server/messages.h"
#include "services/parameter_server/obstacle.h"
#include "services/parameter_server/update_calls.h"

namespace pyc::server {

class ParameterServer : public Collective {
 public:
  /// How long a call may take, and what is asked meanwhile.
  struct Limit {
    Seconds timeout;  ///< negative: no limit
    const Engine::Interrupt& interrupt;
  };

  /// Collective. `weights`: the first ones; those of the servers count. What cannot be had on one rank is a
  /// std::runtime_error on all. The result keeps the engine alive.
  static std::shared_ptr<ParameterServer> create(std::shared_ptr<Engine> engine, Memory& memory, Options options,
                                                 const std::byte* weights, Update update, const Nodes& nodes,
                                                 const Limit& limit);

  // ---- workers

  using Kind = Ledger::Kind;
  /// Hands a gradient over, or null of other kinds. Waits until the push before is let go. After a StallError nothing
  /// is handed over.
  void push(Kind kind, const std::byte* gradient, const Limit& limit);
  /// Whether the worker has been let go after that push of its own.
  virtual bool is_released(Clock clock) = 0;
  void wait(Clock clock, const Limit& limit);
  /// Of the newest push that has been let go.
  virtual Outcome outcome() const = 0;
  /// Takes no part until the next push.
  virtual void leave(const Limit& limit) = 0;
  Clock clock() const { return clock_.load(); }

  // ---- all ranks

  /// The weights, as elements: of a worker those after its push, when it is let go; of others the newest.
  void pull(std::byte* out, const Limit& limit);
  /// `push` and `pull`. After a StallError in the pull, `pull` goes on.
  virtual void push_pull(Kind kind, const std::byte* gradient, std::byte* out, const Limit& limit);
  /// Of the weights that this rank has been given last.
  Version version() const { return given_.load(); }
  /// The ledger's memory, as of one moment.
  virtual std::vector<std::byte> counts(const Limit& limit) = 0;
  /// Of this server, whose function must be called by a thread that is lent; else null.
  virtual std::shared_ptr<UpdateCalls> update_calls() const { return nullptr; }

  void close();
  bool closed() const { return closed_; }
  const Options& options() const { return options_; }
  const Layout& layout() const { return layout_; }

  // ---- Collective

  const std::string& name() const override { return options_.name; }
  void abort() override { leave_for_good(); }
  void name_the_dead() const override { check_alive(); }
  bool has_waiting(Rank rank) const override { return rank == engine_->rank() && in_call_; }

 protected:
  ParameterServer(Engine& engine, Memory& memory, Options options, const Nodes& nodes);

  /// This rank has closed it: tells others.
  virtual void tell_closed() = 0;
  virtual void open(std::uint32_t id) { id_ = id; }
  virtual void start(const std::byte* weights) = 0;

  /// What `push` does once the push before is let go, and what `pull` does once the own push is.
  virtual void hand_over(Kind kind, const std::byte* gradient, const Limit& limit) = 0;
  virtual void fetch(std::byte* out, const Limit& limit) = 0;

  /// Ranks whose pushes are waited for, if that can be found out; takes half a second at most.
  virtual std::optional<std::vector<Rank>> awaited(const Limit& limit) = 0;
  /// Sleeps until something may have changed; false if nobody would say so.
  virtual bool sleep(Seconds, const std::function<bool()>&) { return false; }
  /// What there is to do while this rank waits, again and again.
  virtual void attend() {}

  Rank rank() const { return engine_->rank(); }
  bool is_local(Rank of) const { return nodes_.of(of) == nodes_.of(rank()); }
  messages::Messages mailbox() const { return {*engine_, id_}; }
  TraceTrack track() const { return engine_->trace_of(id_); }
  Worker worker() const { return known(worker_); }
  bool is_elastic() const { return options_.update.rule == Rule::kElastic; }

  void check_open() const;
  void check_worker() const;
  /// Until the push before is let go.
  void wait_for_turn(const Limit& limit);
  /// RankFailedError if a rank of this node is gone.
  void check_alive() const;
  /// Until `done()`; StallError with `what`, and with who is in the way: work of others, or pushes that do not come.
  void wait_for(const std::string& what, const std::function<bool()>& done, const Limit& limit,
                const Obstacle& obstacle = {});
  void answer(Rank to) const;
  void answered(Rank by, const Report& report) { reports_[static_cast<std::size_t>(by)] = report; }

  Engine* const engine_;  // owns this
  Memory& memory_;
  const Options options_;
  const Layout layout_;
  const Nodes nodes_;
  const std::optional<Worker> worker_;
  std::unique_ptr<Board> board_;
  std::uint32_t id_ = 0;  // set before the first call

  // The application's.
  std::atomic<Clock> clock_{0};
  std::atomic<Version> given_{0};
  bool has_reply_ = false;  // elastic averaging: what has become of the pushed weights

 private:
  void make_board(const std::shared_ptr<SharedMemory>& shared, const std::byte* weights);
  void leave_for_good();
  void wait_until(const std::string& what, const std::function<bool()>& done, const Limit& limit,
                  const Obstacle& obstacle);
  std::string explain(const std::string& what, Seconds waited, const std::function<bool()>& done, const Limit& limit);
  std::string explain(const std::string& what, Seconds waited, const Obstacle& obstacle) const;

  std::vector<Report> reports_;  // by rank, to the newest inquiry
  std::atomic<Seconds> called_{0.0};
  std::atomic<bool> in_call_{false};
  std::atomic<bool> closed_{false};
};

}  // namespace pyc::server
