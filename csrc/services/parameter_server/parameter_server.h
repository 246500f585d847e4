// A parameter server as one rank sees it: the application's calls, and how they wait. Derived classes decide where the
// weights are and who updates them: server processes (Served) or the workers themselves (Direct).
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
  /// Limits of a blocking call. `interrupt` is called while it waits.
  struct Limit {
    Seconds timeout;  ///< negative: unlimited
    const Engine::Interrupt& interrupt;
  };

  /// Collective. `weights`: the initial weights; those on the servers count. If one rank fails, all raise
  /// std::runtime_error. The result keeps the engine alive.
  static std::shared_ptr<ParameterServer> create(std::shared_ptr<Engine> engine, Memory& memory, Options options,
                                                 const std::byte* weights, Update update, const Nodes& nodes,
                                                 const Limit& limit);

  // ---- workers

  using Kind = Ledger::Kind;
  /// Hands over a gradient, or null for other kinds. Waits for the release after the previous push. If that raises
  /// StallError, nothing has been handed over.
  void push(Kind kind, const std::byte* gradient, const Limit& limit);
  virtual bool is_released(Clock clock) = 0;
  void wait(Clock clock, const Limit& limit);
  /// Of the newest push with a release.
  virtual Outcome outcome() const = 0;
  /// Takes no part until the next push.
  virtual void suspend(const Limit& limit) = 0;
  Clock clock() const { return clock_.load(); }

  // ---- all ranks

  /// Reads the weights in the element type. A worker waits for its release, and gets the weights after its push; other
  /// ranks get the newest ones.
  /// `least`: waits for weights of this version.
  void pull(std::byte* out, const Limit& limit, Version least = 0);
  /// `push`, then `pull`. After a StallError in the pull, call `pull` to continue.
  virtual void push_pull(Kind kind, const std::byte* gradient, std::byte* out, const Limit& limit);
  /// Of the weights that this rank read last.
  Version version() const { return given_.load(); }
  /// A consistent copy of the ledger's memory.
  virtual std::vector<std::byte> counts(const Limit& limit) = 0;
  /// The calls of this rank's update function, which a thread of the application must serve. Null if there are none.
  virtual std::shared_ptr<UpdateCalls> update_calls() const { return nullptr; }

  // ---- after a death, when the engines of all survivors have stopped

  /// What a shard in this node's memory includes.
  struct Included {
    Version version;
    std::vector<Clock> used;  ///< by worker: pushes that the weights include
    bool is_broken;           ///< the update function has failed
  };

  /// Completes the work on this node's shards that has begun; collective over the survivors of the node. `dead`: ranks
  /// that have died. Returns false if it takes longer than the limit.
  bool settle(std::vector<Rank> dead, const Limit& limit);
  /// Nothing if the shard is on another node. After `settle`.
  std::optional<Included> included(std::size_t shard) const;
  /// Copies the weights of such a shard and the states of the update rule, in the accumulator type.
  void copy_arrays(std::size_t shard, std::byte* out) const { board_->shard(shard)->copy_arrays(out); }
  std::size_t arrays() const { return 1 + options_.update.states(); }

  void check_usable() override {
    Service::check_usable();
    check_whole();
  }
  const Options& options() const { return options_; }
  const Layout& layout() const { return layout_; }

 protected:
  ParameterServer(Engine& engine, Memory& memory, Options options, const Nodes& nodes);

  virtual void start(const std::byte* weights) = 0;
  /// std::runtime_error if a failed update has left the weights unusable.
  virtual void check_whole() const = 0;

  /// `push` after the previous push's release, and `pull` after the own push's.
  virtual void hand_over(Kind kind, const std::byte* gradient, const Limit& limit) = 0;
  virtual void fetch(std::byte* out, const Limit& limit, Version least) = 0;

  /// Ranks whose pushes are awaited; nothing if unknown. Takes at most half a second.
  virtual std::optional<std::vector<Rank>> awaited(const Limit& limit) = 0;
  /// Sleeps until the call may continue. Returns false if nothing would wake it.
  virtual bool sleep(Seconds, const std::function<bool()>&) { return false; }
  virtual void attend() {}
  /// Does work on the shards that waits for no message. Returns whether anything changed.
  virtual bool settle_once() = 0;
  /// Gives up work that only the dead server of a shard could let this rank do.
  virtual void give_up_work(std::size_t /*shard*/) {}

  messages::Messages mailbox() const { return {*engine_, id()}; }
  Worker worker() const { return known(worker_); }
  bool is_elastic() const { return options_.update.rule == Rule::kElastic; }

  void check_worker() const;
  void wait_for_turn(const Limit& limit);
  /// Until `done()`. StallError names `what` and the ranks in the way, by their work or by missing pushes.
  void wait_for(const std::string& what, const std::function<bool()>& done, const Limit& limit,
                const Obstacle& obstacle = {});
  void tell_closed() override;

  Memory& memory_;
  const Options options_;
  const Layout layout_;
  const std::optional<Worker> worker_;
  std::unique_ptr<Board> board_;

  // Written by the application's thread only.
  std::atomic<Clock> clock_{0};
  std::atomic<Version> given_{0};
  bool has_reply_ = false;  // elastic averaging: the averaged weights of the last push can be pulled

 private:
  bool settle_for(const std::vector<Rank>& dead, std::size_t s);
  bool is_settled() const;

  std::optional<Report> progress(std::uint64_t) const override { return std::nullopt; }
  std::vector<Awaited> find_awaited(const Limit& limit, const Obstacle& obstacle);
};

}  // namespace pyc::server
