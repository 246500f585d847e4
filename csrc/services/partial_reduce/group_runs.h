// The P-Reduces of one rank (Ripples section 3.2): an allreduce in place among exactly the members of a group, by
// messages. One at a time; different ranks perform different groups at once.
//
// No communicator is made for a group. A plan depends on the number of members and this rank's place among them, not on
// who they are; so a run serves all groups of its size, and who the peers are is said as it starts. Runs are kept for
// the next group of the same kind. Only one is under way, so all share one piece of scratch memory.
//
// Two ranks perform the groups that both are in in the same order, hence messages between them need no tags of their
// own. That they do is checked: every message carries the number of its P-Reduce.
//
// Under the engine's progress lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
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

  /// Makes all that a P-Reduce needs: nothing is refused later. `members`: ascending, this rank among them.
  /// `data.values` may be neither read nor written by others until what is started has ended. std::invalid_argument if
  /// the algorithm needs too many tags.
  void prepare(std::span<const Rank> members, const GroupData& data, const std::string& algorithm);
  /// What was prepared. `number`: the same on all members.
  void start(std::uint64_t number);

  /// Whether what was started has ended: the result is in its place, and nothing of it is in flight.
  bool finish();

  /// Whether a run was there or had to be made, of all started.
  std::uint64_t cache_hits() const { return hits_; }
  std::uint64_t cache_misses() const { return misses_; }

 private:
  /// All that a plan and a run depend on.
  struct Kind {
    Rank size;
    Rank place;
    std::size_t count;
    Elements elements;
    ReduceOp op;
    std::string algorithm;
    bool operator==(const Kind& other) const;
  };
  struct Cached {
    Kind kind;
    Schedule plan;
    Slice data;
    OpId release;
    std::vector<Rank> peers;
    std::vector<std::size_t> places;  // by buffer of the plan: in the scratch memory
    std::size_t scratch_bytes;        // without the data's
    std::unique_ptr<Run> run;
  };

  Cached& cached(const Kind& kind);
  Cached make(const Kind& kind) const;
  std::unique_ptr<Run> make_run(const Cached& of, std::uint32_t serial) const;
  void reserve_scratch(std::size_t bytes);
  void put_result() const;

  Engine& engine_;
  Memory& memory_;
  const std::uint32_t collective_;
  std::list<Cached> cache_;    // the newest first
  Cached* current_ = nullptr;  // prepared last
  bool running_ = false;
  GroupData data_{};
  std::byte* work_ = nullptr;  // where the run computes
  BufferPtr scratch_;
  std::size_t scratch_bytes_ = 0;
  std::uint64_t hits_ = 0;
  std::uint64_t misses_ = 0;
};

}  // namespace pyc
