// The base of every service: a named collective with memory that the ranks of a node share, and calls that wait for
// other ranks and name them in errors.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/nodes.h"
#include "engine/collective.h"
#include "engine/engine.h"
#include "node/shared_memory.h"
#include "services/common/awaited.h"
#include "services/common/creation.h"
#include "services/common/node_memory.h"
#include "services/common/node_ranks.h"
#include "services/common/rank_state.h"
#include "services/common/waiting.h"

namespace pyc {

class Service : public Collective {
 public:
  /// Leaves permanently; may be called again. The engine still delivers data that this rank has offered to others.
  void close();
  bool closed() const { return closed_; }
  /// Throws the error of the next call if the service has become unusable.
  virtual void check_usable();
  Seconds waited() const { return waited_; }
  /// Memory allocated for this rank, with its part of the node's shared memory.
  virtual std::size_t memory_bytes() const { return memory_bytes_; }
  /// Number of notifications from ranks of the node, including those that found this rank awake.
  std::uint32_t notified() const { return node_->notified(); }

  // ---- Collective

  void on_message(Rank from, ConstBytes message) final;
  Seconds deadline() const override { return kNever; }
  const std::string& name() const final { return name_; }
  void abort() final { leave(); }
  void name_the_dead() const override { check_alive(); }
  bool has_waiting(Rank rank) const final { return rank == this->rank() && in_call_; }

 protected:
  /// `kind` appears in messages, such as "push-sum".
  Service(Engine& engine, const Nodes& nodes, std::string kind, std::string name);

  // ---- creation

  struct OnNode {
    std::size_t bytes;  ///< of all ranks of the node
    /// Constructs this rank's part in the zeroed memory; may throw. The node's lowest rank runs it first.
    std::function<void(std::shared_ptr<std::byte>)> make;
    /// Collective, after `make` on all ranks: setup that needs the other parts.
    std::function<void()> complete = [] {};
    std::size_t of_rank = 0;  ///< this rank's part of `bytes`; 0: equal parts
  };
  /// Collective: allocates each node's memory and enrolls the service. If `make` throws on one rank, all ranks throw
  /// std::runtime_error. Throws StallError like `Engine::compare`. The result keeps the engine alive.
  template <class Kind>
  static std::shared_ptr<Kind> created(std::shared_ptr<Engine> engine, std::shared_ptr<Kind> made,
                                       const OnNode& on_node, Seconds timeout, const Engine::Interrupt& interrupt);
  /// Like `created`, for ranks in one thread, in rank order. The node's lowest rank allocates `shared`.
  template <class Kind>
  static std::shared_ptr<Kind> joined(std::shared_ptr<Engine> engine, std::shared_ptr<Kind> made, const OnNode& on_node,
                                      std::shared_ptr<SharedMemory>& shared);

  std::string what_is_made() const { return "the memory of '" + name_ + "'"; }
  /// Messages may be sent and received from now on. Under the progress lock.
  virtual void open() {}

  // ---- other ranks

  /// Notifies the other ranks that this rank has closed. Called once, under the progress lock.
  virtual void tell_closed() = 0;
  virtual void receive(Rank from, ConstBytes message) = 0;
  /// Answers `Awaited::question` of a waiting rank; nullopt if this rank has not done that. Under the progress lock.
  virtual std::optional<Report> progress(std::uint64_t question) const = 0;

  Rank rank() const { return engine_->rank(); }
  bool is_local(Rank of) const { return nodes_.of(of) == nodes_.of(rank()); }
  std::vector<Rank> on_other_nodes(const std::vector<Rank>& ranks) const;
  std::uint32_t id() const { return id_; }
  TraceTrack track() const { return engine_->trace_of(id_); }
  /// Wakes a rank of this node. Messages wake ranks of other nodes.
  void notify(Rank rank) const {
    if (is_local(rank)) node_->notify(rank);
  }
  /// Sleeps until this rank is notified, unless `done()`. Returns true, for `Call::sleep`.
  bool sleep_until_notified(Seconds limit, const std::function<bool()>& done) const;
  /// Ranks of this node whose processes are gone.
  std::vector<Rank> dead_on_node() const;
  /// Throws RankFailedError if there are any.
  void check_alive() const;
  /// The first check of a call. Throws ClosedError after `close`, or the engine's error.
  void check_open() const;
  /// The part of `close` under the progress lock.
  void leave();
  void add_memory(std::size_t bytes) { memory_bytes_ += bytes; }
  /// Records a call that does not wait, for stall reports of other ranks.
  void note_call() { called_ = engine_->transport().now(); }
  InCall enter_call() { return InCall(in_call_); }

  // ---- waiting

  struct Call {
    // NOLINTBEGIN(readability-redundant-member-init): GCC warns where an initializer leaves out a member without one
    std::string what;                                         ///< for messages, such as "step of iteration 3"
    std::function<bool()> done;                               ///< makes progress; returns whether the call is complete
    std::function<std::vector<Awaited>()> awaited;            ///< missing contributions, as known to this rank
    std::function<std::vector<Awaited>()> find_awaited = {};  ///< ... and to other ranks, which takes time
    Backoff::Sleep sleep = {};                                ///< default: if all awaited ranks are on this node
    const char* if_none_is_missing = "every neighbor has come: it is slow, call again";
    std::function<std::string(Seconds waited)> explain = {};  ///< the reason for the wait; default: from `awaited`
    const char* advice = "";                                  ///< appended to a warning
    bool after_close = false;                                 ///< allowed after `close`
    bool unusable_after = false;  ///< a stall makes the service unusable, and StallError reports it
    // NOLINTEND(readability-redundant-member-init)
  };
  /// Waits for `call.done()`. After `timeout` seconds (negative: unlimited) it throws StallError with the missing
  /// contributions and the states of their ranks; the call may then be repeated.
  void wait_for(const Call& call, Seconds timeout, const Engine::Interrupt& interrupt);

  Engine* const engine_;  // owns this
  const Nodes nodes_;

 private:
  std::size_t head_bytes() const;
  void make(const std::shared_ptr<SharedMemory>& shared, const OnNode& on_node);
  void set_id(std::uint32_t id);
  bool sleep(const Call& call, const std::function<bool()>& done, Seconds limit) const;
  void ask(const std::vector<Awaited>& awaited);
  std::string explain(const Call& call, Seconds waited, const std::function<bool()>& done,
                      const Engine::Interrupt& interrupt);
  Report report(std::uint64_t question) const;

  const std::string kind_;
  const std::string name_;
  std::unique_ptr<NodeRanks> node_;
  std::uint32_t id_ = 0;
  std::size_t memory_bytes_ = 0;
  std::vector<Report> reports_;  // by rank: answers to the newest inquiry
  std::atomic<Seconds> called_;  // time of the application's last call
  std::atomic<Seconds> waited_{0};
  std::atomic<bool> in_call_{false};
  std::atomic<bool> closed_{false};
};

template <class Kind>
std::shared_ptr<Kind> Service::created(std::shared_ptr<Engine> engine, std::shared_ptr<Kind> made,
                                       const OnNode& on_node, Seconds timeout, const Engine::Interrupt& interrupt) {
  Service& service = *made;
  share_memory(
      *engine, service.nodes_, service.head_bytes() + on_node.bytes, service.what_is_made(),
      [&](const std::shared_ptr<SharedMemory>& shared) { service.make(shared, on_node); }, timeout, interrupt);
  on_node.complete();
  return enroll(std::move(engine), std::move(made), [&](std::uint32_t id) { service.set_id(id); });
}

template <class Kind>
std::shared_ptr<Kind> Service::joined(std::shared_ptr<Engine> engine, std::shared_ptr<Kind> made, const OnNode& on_node,
                                      std::shared_ptr<SharedMemory>& shared) {
  Service& service = *made;
  if (service.nodes_.neighbours(service.rank()).front() == service.rank()) {
    shared = SharedMemory::create_private(service.head_bytes() + on_node.bytes);
  }
  service.make(shared, on_node);
  return enroll(std::move(engine), std::move(made), [&](std::uint32_t id) { service.set_id(id); });
}

}  // namespace pyc
