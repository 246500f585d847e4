// Averages in groups that a rule or a generator chooses (Ripples, sections 3 and 4), for the application of one rank.
//
// A rank requests a group from its source (group_source.h), and performs P-Reduces until one answers its request.
// Groups within a node meet in shared memory (group_board.h); others send messages (group_runs.h). Groups that start
// while the application computes wait. After a rank has closed, its engine performs its remaining groups.
//
// Values on a device use slots on devices (device_slots.h), or messages through the host (staged_runs.h). If a rank's
// device fails, all ranks learn of it and leave; its groups are performed without its values, so no rank waits for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "groups/options.h"
#include "services/common/service.h"
#include "services/partial_reduce/group_board.h"
#include "services/partial_reduce/group_device.h"
#include "services/partial_reduce/group_runs.h"
#include "services/partial_reduce/group_source.h"

namespace pyc {

struct PartialReduceOptions {
  std::string name;
  std::size_t count = 0;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kAvg;
  bool by_staleness = false;              ///< weights 1 / (1 + steps behind); float types, AVG
  std::optional<GroupOptions> generator;  ///< none: a rule gives the groups
  Rank server = 0;                        ///< rank of the generator
  std::vector<std::string> algorithms;    ///< by number of members, from 0
  bool on_device = false;
  std::size_t piece_bytes = kPieceBytes;  ///< of a copy to or from the host, for messages
};

struct GroupInfo {
  std::vector<Rank> group;  ///< ascending
  std::uint64_t sequence = 0;
  Seconds waited = 0;  ///< from the request until this rank began its part of the reduction
  std::int32_t conflicts = 0;
};

class PartialReduce final : public Service {
 public:
  using Options = PartialReduceOptions;

  /// Throws std::invalid_argument if the plan of a group needs too many tags, or the error of an algorithm. Called
  /// before the ranks compare options, so that all learn of it.
  static void check(Engine& engine, Memory& memory, const Options& options);

  using OpenDevice = std::function<std::shared_ptr<Executor>()>;
  /// Collective over the engine's ranks; the ranks of a node must share a machine. Throws StallError like
  /// `Engine::compare`, and std::runtime_error on all ranks if one lacks memory. The result keeps the engine alive.
  /// `open_device`: for values on devices; returns this rank's. If it throws on one rank, all ranks fail.
  static std::shared_ptr<PartialReduce> create(std::shared_ptr<Engine> engine, Memory& memory, Options options,
                                               const Nodes& nodes, Seconds timeout, const Engine::Interrupt& interrupt,
                                               const OpenDevice& open_device = {});

  /// Requests a group, and returns when a group that answers is performed: `values` are then its average. `group`: the
  /// members by the rule. On a device no stream may use `values` during the call. Throws StallError after `timeout`
  /// seconds (negative: unlimited) and std::runtime_error if a rank's device fails; every call throws after an error.
  GroupInfo average(std::byte* values, std::int64_t step, const std::vector<Rank>& group, Seconds timeout,
                    const Engine::Interrupt& interrupt);
  /// Leaves. Remaining groups are performed with a copy of `values`, or without values of this rank (null).
  void close_with(const std::byte* values);

  /// Runs `action` without a lock; if this rank's device fails in it, all ranks learn of it.
  template <class Action>
  auto on_device(Action action) {
    try {
      return action();
    } catch (const DeviceError& error) {
      engine_->exclusively([&] { report(error); });
      throw;
    }
  }
  void check_failure();
  void check_usable() override;
  std::uint64_t averages() const { return averages_; }
  bool has_failed();

  /// Whether the engine may still access these values of a call of `average`, after an error.
  bool uses(const std::byte* values);
  const Options& options() const { return options_; }
  std::uint64_t cache_hits() const { return runs_->cache_hits(); }
  std::uint64_t cache_misses() const { return runs_->cache_misses(); }
  std::size_t memory_bytes() const override { return Service::memory_bytes() + runs_->scratch_bytes(); }

  // ---- Collective

  bool advance() override;
  bool busy() const override { return performing_ && (!on_board_ || (device_ && board_->is_working())); }
  bool finished() const override { return has_performed_all() && (!device_ || device_->is_released()); }
  std::vector<Rank> not_closed() const override { return source_->not_left(); }
  void name_the_dead() const override {}  // the groups continue without a rank that has left

 private:
  PartialReduce(Engine& engine, Memory& memory, Options options, const Nodes& nodes);

  std::size_t slot_bytes() const;
  std::size_t head_bytes() const;
  std::size_t board_bytes() const;
  GroupData data_of(std::byte* values, std::int64_t newest_step) const;
  std::size_t local_ranks() const { return nodes_.neighbours(rank()).size(); }
  void make_board(const std::shared_ptr<std::byte>& shared);
  void open() override;
  void tell_closed() override;
  void receive(Rank from, ConstBytes message) override;
  std::optional<Report> progress(std::uint64_t) const override { return std::nullopt; }
  bool perform();
  bool has_performed_all() const { return has_left_ && source_->finished() && !performing_; }
  void report(const DeviceError& error);
  void fail(const std::string& text);
  void end_call();
  void throw_failure() const;
  void throw_given_up() const;
  bool has_ended();
  bool meets_on_board(const Turn& turn) const;
  GroupRuns::Kind kind_of(const Turn& turn) const;
  bool can_begin(const Turn& turn);
  void build_plan();
  void begin(const Turn& turn);
  void conclude();
  void keep(const std::byte* values);
  void announce_leaving();
  std::string what() const;
  std::string explain(const Engine::Interrupt& interrupt);
  bool is_answered() const { return answered_.load(std::memory_order_acquire); }

  Memory& memory_;
  const Options options_;
  std::unique_ptr<GroupSource> source_;
  std::unique_ptr<GroupDevice> device_;  // null: values are on the host
  std::unique_ptr<GroupRuns> runs_;
  std::unique_ptr<GroupBoard> board_;  // for groups within this node, if it has several ranks

  std::byte* values_ = nullptr;  // the application's, `last_`, or null
  BufferPtr final_;              // a copy on the host
  std::byte* last_ = nullptr;    // the final values: `final_`, or the device's copy
  std::int64_t step_ = 0;        // of the newest request
  Seconds asked_ = 0;            // time of the newest request
  bool asking_ = false;          // a request is not answered yet
  bool performing_ = false;
  bool on_board_ = false;
  bool has_left_ = false;
  bool given_up_ = false;                // a call ended by an error, and its request may still be answered
  std::optional<std::string> failure_;   // of a device
  GroupInfo info_;                       // of the current or last group
  GroupInfo answer_;                     // of the group that answered the newest request
  std::atomic<bool> needs_plan_{false};  // the next group, before it can begin
  std::atomic<bool> answered_{false};
  std::atomic<std::uint64_t> averages_{0};
};

}  // namespace pyc
