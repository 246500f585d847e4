// P-Reduces in explicit groups, which the application gives: `Communicator.preduce`.
//
// The collective has a reserved id (kUncreated) and no creation. Each rank makes it at its first use; the engine keeps
// earlier messages. Members meet in a handshake (handshake.h). They then use messages (group_runs.h) or, within a node,
// shared memory (node_groups.h). Values on a device go by messages, through host memory (staged_runs.h). A member whose
// device fails reports it to the others and continues without data; every call throws, unless it has the sum.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/nodes.h"
#include "engine/collective.h"
#include "engine/engine.h"
#include "services/common/rank_state.h"
#include "services/common/waiting.h"
#include "services/partial_reduce/group_runs.h"
#include "services/partial_reduce/handshake.h"
#include "services/partial_reduce/node_groups.h"
#include "services/partial_reduce/preduce_messages.h"
#include "services/partial_reduce/staged_runs.h"

namespace pyc {

class ExplicitGroups final : public Collective {
 public:
  /// Once per engine. The result keeps the engine alive.
  static std::shared_ptr<ExplicitGroups> join(std::shared_ptr<Engine> engine, Memory& memory, const Nodes& nodes);

  using Wanted = Handshake::Wanted;

  /// Collective among the members. The algorithm is the same on all; "board" is shared memory, and throws
  /// std::runtime_error if that is unavailable. Throws StallError with the missing ranks after `timeout` seconds
  /// (negative: unlimited), RankFailedError with the dead ranks of this node, MismatchError, or ClosedError. After an
  /// error the P-Reduce may still be performed, see `uses`.
  void reduce(const Wanted& wanted, Seconds timeout, const Engine::Interrupt& interrupt);
  /// The other members' calls throw MismatchError with the reason. Later P-Reduces are not affected.
  void refuse_call(const std::vector<Rank>& members, const std::string& reason);
  /// Runs `action` on a device before `members` reduce on it. If the device fails, they learn of it, and this rank
  /// takes part in no further P-Reduce.
  template <class Action>
  auto on_device(const std::vector<Rank>& members, Action action) {
    const InCall in_call(in_call_);
    try {
      return action();
    } catch (const DeviceError& error) {
      engine_->exclusively([&] { refuse(members, error.what()); });
      throw;
    }
  }
  /// Like `reduce`, without "board", for values on a device. Throws std::runtime_error if a member's device fails.
  void reduce_on_device(const std::shared_ptr<Executor>& device, const Wanted& wanted, Seconds timeout,
                        const Engine::Interrupt& interrupt);

  /// Whether a P-Reduce may still read and write these values.
  bool uses(const std::byte* values);
  void close();
  std::uint64_t cache_hits() const { return runs_.cache_hits(); }
  std::uint64_t cache_misses() const { return runs_.cache_misses(); }

  // ---- Collective

  bool advance() override;
  void on_message(Rank from, ConstBytes message) override;
  bool busy() const override { return is_under_way() && !(stage_ == Stage::kBegun && on_board_); }
  bool in_background() const override { return is_under_way() || must_withdraw_; }
  Seconds deadline() const override { return kNever; }
  bool finished() const override { return closed_ && !is_under_way() && !must_withdraw_; }
  const std::string& name() const override { return name_; }
  void abort() override { closed_ = true; }
  std::vector<Rank> not_closed() const override;
  bool has_waiting(Rank rank) const override { return rank == engine_->rank() && in_call_; }

 private:
  enum class Stage : std::uint8_t { kHandshake, kBegun, kEnded };

  ExplicitGroups(Engine& engine, Memory& memory, const Nodes& nodes);

  bool is_under_way() const { return stage_ != Stage::kEnded; }
  bool is_done() const { return done_.load(std::memory_order_acquire); }
  void refuse(const std::vector<Rank>& members, const std::string& text);
  void make_room(const std::shared_ptr<Executor>& device, const GroupData& data);
  void build_plan(const GroupRuns::Kind& kind);
  void check_usable() const;
  void come(const Wanted& wanted, std::size_t piece);
  void wait(Seconds timeout, const Engine::Interrupt& interrupt);
  bool begin();
  void attach_all();
  void begin_on_device();
  bool has_performed();
  bool has_performed_on_device();
  void lose_device(const DeviceError& error);
  bool learn_failure();
  void end();
  void fail(std::exception_ptr error, Handshake::Reason reason);
  static RankFailedError failure_of(const std::vector<Rank>& dead);
  void check_alive();

  Report own_state() const;
  void answer(Rank rank);
  std::string explain(Seconds waited, const Engine::Interrupt& interrupt);
  std::vector<Report> reports();

  Engine* const engine_;  // owns this
  const std::string name_ = "preduce";
  const PreduceMailbox mailbox_;
  Handshake handshake_;
  std::shared_ptr<Executor> device_;    // of the newest P-Reduce on a device
  std::unique_ptr<StagedRuns> staged_;  // with room for all so far
  GroupRuns runs_;
  NodeGroups on_node_;

  // The newest P-Reduce. All members except atomics are under the progress lock.
  Stage stage_ = Stage::kEnded;
  std::optional<Seconds> refused_at_;  // when memory of a member could not be opened
  std::vector<Rank> members_;
  GroupData data_{};
  std::string algorithm_;
  bool on_board_ = false;
  bool on_device_ = false;
  std::exception_ptr error_;
  FailureReports failures_;

  std::vector<Report> reports_;    // by rank: answers to the newest inquiry
  std::vector<Rank> asked_early_;  // ranks that inquired before the first call
  Seconds called_;
  bool failed_ = false;         // a call ended by an error
  bool must_withdraw_ = false;  // a call was given up, and the other ranks do not know yet
  std::atomic<bool> done_{true};
  std::atomic<bool> in_call_{false};
  std::atomic<bool> closed_{false};
};

}  // namespace pyc
