// Averages in groups, for which somebody else says who is in which (Ripples, sections 3 and 4): what the application of
// one rank sees of it.
//
// A rank that synchronises asks its source of groups (group_source.h) and performs what it is given, one P-Reduce after
// the other, until one answers its request. A group whose members are all of one node exchanges nothing: it meets in
// shared memory (group_board.h); others send messages (group_runs.h). What it is given while it computes waits.
// After it has closed, its engine performs what there still is, in the background, with the values that it left.
//
// Values on a device go the same two ways: the node's board has its slots there (device_slots.h), and messages go
// through the host (staged_runs.h). If one rank's device fails, all ranks are told, and leave: groups that they are in
// are performed without values of theirs, so that nobody waits for ever.
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
  std::optional<GroupOptions> generator;  ///< none: a rule says the groups
  Rank server = 0;                        ///< has the generator
  std::vector<std::string> algorithms;    ///< by the number of members, from 0 on
  bool on_device = false;                 ///< by create_on_device
  std::size_t piece_bytes = kPieceBytes;  ///< ... that are copied to the host, and back, at a time, between nodes
};

/// What a synchronisation is told.
struct GroupInfo {
  std::vector<Rank> group;  ///< ascending
  std::uint64_t sequence = 0;
  Seconds waited = 0;  ///< from the request until this rank began its part of the reduction
  std::int32_t conflicts = 0;
};

class PartialReduce final : public Service {
 public:
  using Options = PartialReduceOptions;

  /// What `create` would throw for the plans of its groups: std::invalid_argument if one needs too many tags, and
  /// whatever its algorithm throws. Each rank calls it before ranks agree on these options, so that all learn of it.
  static void check(Engine& engine, Memory& memory, const Options& options);

  /// Collective over the engine's ranks; those of a node must share a machine. StallError as `Engine::compare`;
  /// std::runtime_error on all ranks if the memory cannot be had on one. The result keeps the engine alive.
  static std::shared_ptr<PartialReduce> create(std::shared_ptr<Engine> engine, Memory& memory, Options options,
                                               const Nodes& nodes, Seconds timeout, const Engine::Interrupt& interrupt);
  /// The same for values on devices. `open` gives this rank's, and is called once on each; what it throws on one fails
  /// on all.
  using OpenDevice = std::function<std::shared_ptr<Executor>()>;
  static std::shared_ptr<PartialReduce> create_on_device(std::shared_ptr<Engine> engine, const OpenDevice& open,
                                                         Options options, const Nodes& nodes, Seconds timeout,
                                                         const Engine::Interrupt& interrupt);

  /// Asks for a group, and returns when one that answers has been performed: `values` are its average. `group`: what
  /// the rule says. On a device no stream works on them from the call to the return. StallError after `timeout` seconds
  /// (negative: no limit); after an error no call works any more. std::runtime_error says whose device has failed.
  GroupInfo average(std::byte* values, std::int64_t step, const std::vector<Rank>& group, Seconds timeout,
                    const Engine::Interrupt& interrupt);
  /// Leaves; what is to be performed still is performed with a copy of `values`, or without this rank's (null).
  void close_with(const std::byte* values);

  /// Runs it, outside of any lock; if this rank's device fails there, all ranks are told.
  template <class Action>
  auto on_device(Action action) {
    try {
      return action();
    } catch (const DeviceError& error) {
      engine_->exclusively([&] { report(error); });
      throw;
    }
  }
  /// std::runtime_error if a device has failed.
  void check_failure();
  void check_usable() override;
  /// Calls of `average` that were answered.
  std::uint64_t averages() const { return averages_; }
  bool has_failed();

  /// Whether these values, given to `average`, may still be read and written: after an error.
  bool uses(const std::byte* values);
  const Options& options() const { return options_; }
  /// Whether the run that a group needs was there or had to be made.
  std::uint64_t cache_hits() const { return runs_->cache_hits(); }
  std::uint64_t cache_misses() const { return runs_->cache_misses(); }
  std::size_t memory_bytes() const override { return Service::memory_bytes() + runs_->scratch_bytes(); }

  // ---- Collective

  bool advance() override;
  bool busy() const override { return performing_ && (!on_board_ || (device_ && board_->is_working())); }
  bool finished() const override { return has_performed_all() && (!device_ || device_->is_released()); }
  std::vector<Rank> not_closed() const override { return source_->not_left(); }
  void name_the_dead() const override {}  // the groups go on without a rank that has left

 private:
  PartialReduce(Engine& engine, Memory& memory, Options options, const Nodes& nodes);

  std::size_t slot_bytes() const;
  GroupData data_of(std::byte* values, std::int64_t newest_step) const;
  std::size_t local_ranks() const { return nodes_.neighbours(rank()).size(); }
  void make_board(const std::shared_ptr<std::byte>& shared);
  void make_board_on_device(const std::shared_ptr<std::byte>& shared);
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

  std::byte* values_ = nullptr;  // the application's, or `last_`, or nothing
  BufferPtr final_;              // a copy, on the host
  std::byte* last_ = nullptr;    // the final values: that, or what the device has kept
  std::int64_t step_ = 0;        // of the newest request
  Seconds asked_ = 0;            // when
  bool asking_ = false;          // a request is not answered yet
  bool performing_ = false;
  bool on_board_ = false;  // ... in shared memory
  bool has_left_ = false;
  bool given_up_ = false;                // a call ended by an error, and its request may still be answered
  std::optional<std::string> failure_;   // of a device
  GroupInfo info_;                       // of the group that is or was performed last
  GroupInfo answer_;                     // of the one that answered the newest request
  std::atomic<bool> needs_plan_{false};  // the next group, before it can begin
  std::atomic<bool> answered_{false};
  std::atomic<std::uint64_t> averages_{0};
};

}  // namespace pyc
