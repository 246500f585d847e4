// A parameter server as one rank sees it: what workers call, and how a call waits. Where the weights are and
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

#include "memory/memory.h"
#include "services/common/service.h"
#include "services/parameter_server/board.h"
#include "services/parameter_server/layout.h"
#include "services/parameter_server/ledger.h"
#include "services/parameter_server/messages.h"
#include "services/parameter_server/obstacle.h"
#include "services/parameter_server/update_calls.h"

namespace pyc::server {

class ParameterServer : public Service {
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
  virtual void suspend(const Limit& limit) = 0;
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

  void check_usable() override {
    Service::check_usable();
    check_whole();
  }
  const Options& options() const { return options_; }
  const Layout& layout() const { return layout_; }

 protected:
  ParameterServer(Engine& engine, Memory& memory, Options options, const Nodes& nodes);

  virtual void start(const std::byte* weights) = 0;
  /// std::runtime_error if a function has left them half changed.
  virtual void check_whole() const = 0;

  /// What `push` does once the push before is let go, and what `pull` does once the own push is.
  virtual void hand_over(Kind kind, const std::byte* gradient, const Limit& limit) = 0;
  virtual void fetch(std::byte* out, const Limit& limit) = 0;

  /// Ranks whose pushes are waited for, if that can be found out; takes half a second at most.
  virtual std::optional<std::vector<Rank>> awaited(const Limit& limit) = 0;
  /// Sleeps until something may have changed; false if nobody would say so.
  virtual bool sleep(Seconds, const std::function<bool()>&) { return false; }
  /// What there is to do while this rank waits, again and again.
  virtual void attend() {}

  messages::Messages mailbox() const { return {*engine_, id()}; }
  Worker worker() const { return known(worker_); }
  bool is_elastic() const { return options_.update.rule == Rule::kElastic; }

  void check_worker() const;
  /// Until the push before is let go.
  void wait_for_turn(const Limit& limit);
  /// Until `done()`; StallError with `what`, and with who is in the way: work of others, or pushes that do not come.
  void wait_for(const std::string& what, const std::function<bool()>& done, const Limit& limit,
                const Obstacle& obstacle = {});
  /// Tells the ranks of this node.
  void tell_closed() override;

  Memory& memory_;
  const Options options_;
  const Layout layout_;
  const std::optional<Worker> worker_;
  std::unique_ptr<Board> board_;

  // The application's.
  std::atomic<Clock> clock_{0};
  std::atomic<Version> given_{0};
  bool has_reply_ = false;  // elastic averaging: what has become of the pushed weights

 private:
  std::optional<Report> progress(std::uint64_t) const override { return std::nullopt; }
  std::vector<Awaited> find_awaited(const Limit& limit, const Obstacle& obstacle);
};

}  // namespace pyc::server
