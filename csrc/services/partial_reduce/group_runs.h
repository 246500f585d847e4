// The P-Reduces of one rank (Ripples section 3.2): an allreduce in place among exactly the members of a group, by
// messages. One at a time; different ranks perform different groups at once.
//
// No communicator is made for a group. A plan depends on the number of members and this rank's position among them, not
// on who they are; so a run serves all groups of its size, and who the peers are is said as it starts. Runs are kept
// for the next group of the same kind. Only one is under way, so all share one piece of scratch memory.
//
// Two ranks perform the groups that both are in in the same order, hence messages between them need no tags of their
// own. That they do is checked: every message carries the number of its P-Reduce.
//
// Under the engine's progress lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/run.h"
#include "memory/group_data.h"
#include "memory/memory.h"
#include "schedule/schedule.h"
#include "services/common/staging.h"

namespace pyc {

class GroupRuns final : private Copier {
 public:
  /// Of `engine`'s rank, with the tags of `collective`.
  GroupRuns(Engine& engine, Memory& memory, std::uint32_t collective);
  /// Before the first that is staged, and while nothing is under way; outlives this, or the next one.
  void use(Staging& staging) { staging_ = &staging; }

  /// All that a plan and a run depend on.
  struct Kind {
    Rank size;
    Rank local;  // this rank, among the members
    std::size_t count;
    Elements elements;
    ReduceOp op;
    std::string algorithm;
    std::size_t piece;  // of elements; 0: it is not staged
    bool operator==(const Kind& other) const;
  };
  struct Plan {
    Kind kind;
    Schedule schedule;
    Slice data;
    std::optional<Slice> staging;  // if it is staged
    OpId release;
    std::vector<std::size_t> offsets;  // by buffer of the schedule: in the scratch memory
    std::size_t scratch_bytes;         // without the data's
  };

  Kind kind_of(std::span<const Rank> members, const GroupData& data, const std::string& algorithm,
               std::size_t piece = 0) const;
  /// std::invalid_argument if a group of some size needs too many tags. `algorithms`: by size, from 0 on.
  void check(const std::vector<std::string>& algorithms, const GroupData& data, std::size_t piece) const;
  /// Whether `prepare` has the plan of this kind, and builds none.
  bool has(const Kind& kind) const;
  /// Without the progress lock: an algorithm may be written in Python, and wait for the GIL. std::invalid_argument if
  /// it needs too many tags.
  Plan build(const Kind& kind) const;
  /// For the next `prepare` of its kind.
  void keep(Plan plan) { built_ = std::move(plan); }

  /// Makes all that a P-Reduce needs: nothing is refused later. `members`: ascending, this rank among them.
  /// Before `start` it may be called again, for other values. `data.values` may be neither read nor written by others
  /// until what is started has ended.
  ///
  /// With `piece` it is staged: `data.values` is elsewhere, has accumulators, and gets the sum. What is copied from
  /// there and back, in pieces of at least so many elements, is asked of the staging.
  void prepare(std::span<const Rank> members, const GroupData& data, const std::string& algorithm,
               std::size_t piece = 0);
  /// What was prepared. `number`: the same on all members.
  void start(std::uint64_t number);

  /// Whether what was started has ended: the result is in its place, and nothing of it is in flight.
  bool finish();

  // Of what is staged:
  void on_copied(OpId op);
  /// This rank has lost its data. Messages from now on say so, and so do those of whoever gets one.
  void fail() { current_->run->fail(); }
  /// The sum, of what has ended last, is worth nothing: some member has lost its data.
  bool failed() const { return current_->run->failed(); }
  /// Of what has ended last.
  std::size_t contributors() const;

  /// Whether a run was there or had to be made, of all started. Without the lock.
  std::uint64_t cache_hits() const { return hits_; }
  std::uint64_t cache_misses() const { return misses_; }
  /// Memory that its runs share; it grows with the groups. Without the lock.
  std::size_t scratch_bytes() const { return scratch_bytes_; }

 private:
  struct Cached {
    Plan plan;
    std::vector<Rank> peers;
    std::unique_ptr<Run> run;
  };

  void copy(OpId op, std::byte* to, const std::byte* from, std::size_t bytes) override {
    staging_->copy(op, to, from, bytes);
  }
  Cached& cached(const Kind& kind);
  std::unique_ptr<Run> make_run(const Cached& of, std::uint32_t serial);
  void reserve_scratch(std::size_t bytes);
  void put_result() const;

  Engine& engine_;
  Memory& memory_;
  const std::uint32_t collective_;
  Staging* staging_ = nullptr;
  std::list<Cached> cache_;    // the newest first
  std::optional<Plan> built_;  // not in the cache yet
  Cached* current_ = nullptr;  // prepared last
  bool is_prepared_ = false;   // ... and not started
  bool running_ = false;
  GroupData data_{};
  std::byte* work_ = nullptr;  // where the run computes
  BufferPtr scratch_;
  std::atomic<std::size_t> scratch_bytes_{0};
  std::atomic<std::uint64_t> hits_{0};
  std::atomic<std::uint64_t> misses_{0};
};

}  // namespace pyc
