// What every service is, to the application and to other ranks: a collective with a name, memory that the ranks of a
// node share, calls that wait for other ranks and say whom they wait for, and an end.
//
// A service adds its calls, its messages, and what of its progress other ranks may ask.
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
  /// Leaves for good. The engine brings to others what they have been offered. May be called again.
  void close();
  bool closed() const { return closed_; }
  /// Throws what the next call would, if it cannot be used any more.
  virtual void check_usable();
  /// For which its calls have waited for other ranks.
  Seconds waited() const { return waited_; }
  /// Of what was made for this rank; of what ranks of a node share its part.
  virtual std::size_t memory_bytes() const { return memory_bytes_; }
  /// How often ranks of its node have woken this one, or would have if it had slept.
  std::uint32_t notified() const { return node_->notified(); }

  // ---- Collective

  void on_message(Rank from, ConstBytes message) final;
  Seconds deadline() const override { return kNever; }
  const std::string& name() const final { return name_; }
  void abort() final { leave(); }
  void name_the_dead() const override { check_alive(); }
  bool has_waiting(Rank rank) const final { return rank == this->rank() && in_call_; }

 protected:
  /// `kind`: for messages, such as "push-sum".
  Service(Engine& engine, const Nodes& nodes, std::string kind, std::string name);

  // ---- creation

  /// What the ranks of a node share.
  struct OnNode {
    std::size_t bytes;  ///< of all of them
    /// Makes this rank's part of it, which is zeroed, and whatever else may be refused. The node's lowest rank first.
    std::function<void(std::shared_ptr<std::byte>)> make;
    /// Collective, once all have: what needs the other parts.
    std::function<void()> complete = [] {};
    std::size_t of_rank = 0;  ///< this rank's part of `bytes`; 0: ranks have equal parts
  };
  /// Collective over the engine's ranks: memory for each node, and enrolment. What `make` throws on one rank is a
  /// std::runtime_error on all. StallError as `Engine::compare`. The result keeps the engine alive.
  template <class Kind>
  static std::shared_ptr<Kind> created(std::shared_ptr<Engine> engine, std::shared_ptr<Kind> made,
                                       const OnNode& on_node, Seconds timeout, const Engine::Interrupt& interrupt);
  /// The same where all ranks are in one thread, which makes them in the order of ranks. `shared`: of the node; its
  /// lowest rank makes it.
  template <class Kind>
  static std::shared_ptr<Kind> joined(std::shared_ptr<Engine> engine, std::shared_ptr<Kind> made, const OnNode& on_node,
                                      std::shared_ptr<SharedMemory>& shared);

  std::string what_is_made() const { return "the memory of '" + name_ + "'"; }
  /// Messages come from now on, and may be sent. Under the progress lock.
  virtual void open() {}

  // ---- other ranks

  /// Tells others that this rank has closed it. Once, under the progress lock.
  virtual void tell_closed() = 0;
  /// A message of the service's own.
  virtual void receive(Rank from, ConstBytes message) = 0;
  /// What this rank has done, as another one that waits for it asks; nothing: it has left, or is to be found
  /// elsewhere. Under the progress lock.
  virtual std::optional<Report> progress(std::uint64_t question) const = 0;

  Rank rank() const { return engine_->rank(); }
  bool is_local(Rank of) const { return nodes_.of(of) == nodes_.of(rank()); }
  std::vector<Rank> on_other_nodes(const std::vector<Rank>& ranks) const;
  std::uint32_t id() const { return id_; }
  TraceTrack track() const { return engine_->trace_of(id_); }
  /// Wakes a rank of this node. Those of others are woken by messages.
  void notify(Rank rank) const {
    if (is_local(rank)) node_->notify(rank);
  }
  /// Until this rank is notified, unless `done`. True, for `Call::sleep`.
  bool sleep_until_notified(Seconds limit, const std::function<bool()>& done) const;
  /// RankFailedError if a rank of this node has died.
  void check_alive() const;
  /// What a call begins with. ClosedError after `close`; the engine's error if it has failed.
  void check_open() const;
  /// What `close` does, under the progress lock.
  void leave();
  /// This rank has made so much memory of its own.
  void add_memory(std::size_t bytes) { memory_bytes_ += bytes; }
  /// The application calls, in a call that does not wait.
  void note_call() { called_ = engine_->transport().now(); }
  /// The application is in a call for as long as this lives; `wait_for` makes one too.
  InCall enter_call() { return InCall(in_call_); }

  // ---- waiting

  struct Call {
    // NOLINTBEGIN(readability-redundant-member-init): GCC warns where an initializer leaves out a member without one
    std::string what;                                         ///< for messages: "step of iteration 3"
    std::function<bool()> done;                               ///< does what can be done; whether that is all
    std::function<std::vector<Awaited>()> awaited;            ///< as far as known here
    std::function<std::vector<Awaited>()> find_awaited = {};  ///< ... and by asking other ranks, which takes time
    Backoff::Sleep sleep = {};                                ///< default: if all that is awaited is of this node
    const char* if_none_is_missing = "every neighbor has come: it is slow, call again";
    std::function<std::string(Seconds waited)> explain = {};  ///< why it is not done; default: as `awaited` says
    const char* advice = "";                                  ///< at the end of a warning
    bool after_close = false;                                 ///< it may be called then too
    bool unusable_after = false;                              ///< StallError says so: it cannot go on where it was
    // NOLINTEND(readability-redundant-member-init)
  };
  /// Until `done()`. StallError after `timeout` seconds (negative: no limit): what is awaited of whom, and what those
  /// ranks do. The call may be repeated then.
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
  std::uint32_t id_ = 0;  // set before the first call
  std::size_t memory_bytes_ = 0;
  std::vector<Report> reports_;  // by rank, to the newest inquiry
  std::atomic<Seconds> called_;  // when the application called last
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
