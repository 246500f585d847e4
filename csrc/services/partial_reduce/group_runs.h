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

namespace pyc {

class GroupRuns {
 public:
  /// Of `engine`'s rank, with the tags of `collective`.
  GroupRuns(Engine& engine, Memory& memory, std::uint32_t collective);

  /// std::invalid_argument if a group of some size needs too many tags. `algorithms`: by size, from 0 on.
  void check(const std::vector<std::string>& algorithms, std::size_t count, Elements elements, ReduceOp op) const;

  /// All that a plan and a run depend on.
  struct Kind {
    Rank size;
    Rank local;  // this rank, among the members
    std::size_t count;
    Elements elements;
    ReduceOp op;
    std::string algorithm;
    bool operator==(const Kind& other) const;
  };
  struct Plan {
    Kind kind;
    Schedule schedule;
    Slice data;
    OpId release;
    std::vector<std::size_t> offsets;  // by buffer of the schedule: in the scratch memory
    std::size_t scratch_bytes;         // without the data's
  };

  Kind kind_of(std::span<const Rank> members, const GroupData& data, const std::string& algorithm) const;
  /// Whether `prepare` has the plan of this kind, and builds none.
  bool has(const Kind& kind) const;
  /// Without the progress lock: an algorithm may be written in Python, and wait for the GIL. std::invalid_argument if
  /// it needs too many tags.
  Plan build(const Kind& kind) const;
  /// For the next `prepare` of its kind.
  void keep(Plan plan) { built_ = std::move(plan); }

  /// Makes all that a P-Reduce needs: nothing is refused later. `members`: ascending, this rank among them.
  /// `data.values` may be neither read nor written by others until what is started has ended.
  void prepare(std::span<const Rank> members, const GroupData& data, const std::string& algorithm);
  /// What was prepared. `number`: the same on all members.
  void start(std::uint64_t number);

  /// Whether what was started has ended: the result is in its place, and nothing of it is in flight.
  bool finish();

  /// Whether a run was there or had to be made, of all started. Without the lock.
  std::uint64_t cache_hits() const { return hits_; }
  std::uint64_t cache_misses() const { return misses_; }

 private:
  struct Cached {
    Plan plan;
    std::vector<Rank> peers;
    std::unique_ptr<Run> run;
  };

  Cached& cached(const Kind& kind);
  std::unique_ptr<Run> make_run(const Cached& of, std::uint32_t serial) const;
  void reserve_scratch(std::size_t bytes);
  void put_result() const;

  Engine& engine_;
  Memory& memory_;
  const std::uint32_t collective_;
  std::list<Cached> cache_;    // the newest first
  std::optional<Plan> built_;  // not in the cache yet
  Cached* current_ = nullptr;  // prepared last
  bool running_ = false;
  GroupData data_{};
  std::byte* work_ = nullptr;  // where the run computes
  BufferPtr scratch_;
  std::size_t scratch_bytes_ = 0;
  std::atomic<std::uint64_t> hits_{0};
  std::atomic<std::uint64_t> misses_{0};
};

}  // namespace pyc
