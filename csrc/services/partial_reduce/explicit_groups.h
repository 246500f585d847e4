// P-Reduces in groups that the application gives: `Communicator.preduce`.
//
// A collective that nobody creates: it has an id of its own (kUncreated), and each rank makes it when it needs it
// first. Its members meet (handshake.h); then it goes by messages (group_runs.h) or, within a node, in shared memory
// (node_groups.h), as they agree. What is sent to a rank that has not come yet waits in its engine.
//
// Values on a device go by messages, through memory of the host (staged_runs.h). A member whose device fails says so to
// the others, and goes on without data: each ends with an error, unless it has the sum.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
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

  /// Collective among `members` (ascending, this rank among them). `algorithm`: the same on all; "board": in shared
  /// memory, std::runtime_error if it cannot be had. StallError after `timeout` seconds (negative: no limit) names
  /// those who have not come; RankFailedError those of this node who have died; MismatchError and ClosedError say why
  /// it cannot be performed. After an error the P-Reduce may still be performed, see `uses`. `caller`: in kCallers.
  void reduce(const std::vector<Rank>& members, const GroupData& data, const std::string& algorithm,
              std::uint32_t caller, Seconds timeout, const Engine::Interrupt& interrupt);
  /// For a caller whose arguments are refused: the other members' calls raise a MismatchError with the reason. Later
  /// P-Reduces are not affected.
  void refuse_call(const std::vector<Rank>& members, const std::string& reason);
  /// Of a device, before `members` reduce on it. If it fails, they are told so, and this rank comes to no P-Reduce any
  /// more.
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
  /// The same of values on a device, not by "board". std::runtime_error if the device fails, or cannot give the memory
  /// that it takes, and so does another member's, which is named.
  void reduce_on_device(const std::shared_ptr<Executor>& device, const std::vector<Rank>& members,
                        const GroupData& data, const std::string& algorithm, std::uint32_t caller, Seconds timeout,
                        const Engine::Interrupt& interrupt);

  /// Whether these values may still be read and written.
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
  /// Of the newest P-Reduce.
  enum class Stage : std::uint8_t { kHandshake, kBegun, kEnded };

  ExplicitGroups(Engine& engine, Memory& memory, const Nodes& nodes);

  bool is_under_way() const { return stage_ != Stage::kEnded; }
  bool is_done() const { return done_.load(std::memory_order_acquire); }
  void perform(const Handshake::Wanted& wanted, Seconds timeout, const Engine::Interrupt& interrupt);
  void refuse(const std::vector<Rank>& members, const std::string& text);
  void make_room(const std::shared_ptr<Executor>& device, const GroupData& data);
  void build_plan(const GroupRuns::Kind& kind);
  void check_usable() const;
  void come(const Handshake::Wanted& wanted, std::size_t piece);
  void wait(Seconds timeout, const Engine::Interrupt& interrupt);
  void begin();
  void attach_all();
  void begin_on_device();
  bool has_performed();
  bool has_performed_on_device();
  void lose_device(const DeviceError& error);
  bool learn_failure();
  void end();
  void fail(std::exception_ptr error, Handshake::Reason reason);
  void check_alive();

  Report own_state() const;
  void answer(Rank rank);
  std::string explain(Seconds waited, const Engine::Interrupt& interrupt);
  std::vector<Report> reports();

  Engine* const engine_;  // owns this
  const std::string name_ = "preduce";
  const PreduceMailbox mailbox_;
  Handshake handshake_;
  std::shared_ptr<Executor> device_;    // of the newest on a device
  std::unique_ptr<StagedRuns> staged_;  // ... with room for all so far
  GroupRuns runs_;
  NodeGroups on_node_;

  // The newest P-Reduce. Under the progress lock, as all that is not atomic.
  Stage stage_ = Stage::kEnded;
  std::vector<Rank> members_;
  GroupData data_{};
  std::string algorithm_;
  bool on_board_ = false;
  bool on_device_ = false;
  std::exception_ptr error_;
  FailureReports failures_;  // of devices

  std::vector<Report> reports_;    // by rank, to the newest inquiry
  std::vector<Rank> asked_early_;  // inquired before the first call
  Seconds called_;
  bool failed_ = false;         // a call ended by an error
  bool must_withdraw_ = false;  // ... and the others are to hear of it
  std::atomic<bool> done_{true};
  std::atomic<bool> in_call_{false};
  std::atomic<bool> closed_{false};
};

}  // namespace pyc
