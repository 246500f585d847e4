// The P-Reduces of one rank by messages (Ripples section 3.2): an allreduce among the members of a group. One at a
// time; different ranks perform different groups concurrently. Under the engine's progress lock.
//
// No communicator is made for a group. A plan depends on the number of members and this rank's position among them, so
// a run serves all groups of its size, and gets its peers when it starts. Runs are cached by kind, and share one piece
// of scratch memory. Two ranks perform their common groups in the same order, so messages need no tags per group;
// receives check the number of the P-Reduce in every message.
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
  GroupRuns(Engine& engine, Memory& memory, std::uint32_t collective);
  /// Before the first staged P-Reduce, while none is under way. `staging` outlives this object, or the next call.
  void use(Staging& staging) { staging_ = &staging; }

  struct Kind {
    Rank size;
    Rank local;  // this rank's position among the members
    std::size_t count;
    Elements elements;
    ReduceOp op;
    std::string algorithm;
    std::size_t piece;  // in elements; 0: not staged
    bool operator==(const Kind& other) const;
  };
  struct Plan {
    Kind kind;
    Schedule schedule;
    Slice data;
    std::optional<Slice> staging;
    OpId release;
    std::vector<std::size_t> offsets;  // by buffer: its offset in the scratch memory
    std::size_t scratch_bytes;         // without the data
  };

  Kind kind_of(std::span<const Rank> members, const GroupData& data, const std::string& algorithm,
               std::size_t piece = 0) const;
  /// Throws std::invalid_argument if a group of some size needs too many tags. `algorithms`: by size, from 0.
  void check(const std::vector<std::string>& algorithms, const GroupData& data, std::size_t piece) const;
  bool has(const Kind& kind) const;
  /// Without the progress lock, because an algorithm in Python waits for the GIL. Throws like `check`.
  Plan build(const Kind& kind) const;
  /// For the next `prepare` of its kind.
  void keep(Plan plan) { built_ = std::move(plan); }

  /// Allocates all that a P-Reduce needs, so that `start` cannot fail. `members`: ascending, with this rank. May be
  /// called again before `start`. Until the P-Reduce has ended, nothing else may access `data.values`.
  ///
  /// With `piece` it is staged: `data.values` are accumulators in device memory, and become the sum. The staging copies
  /// them in pieces of at least `piece` elements.
  void prepare(std::span<const Rank> members, const GroupData& data, const std::string& algorithm,
               std::size_t piece = 0);
  /// `number` is the same on all members.
  void start(std::uint64_t number);

  /// Returns whether the P-Reduce has ended: the result is in place, and nothing is in flight.
  bool finish();

  void on_copied(OpId op);
  /// This rank has lost its data. Its later messages report that, and so do those that their receivers send.
  void fail() { current_->run->fail(); }
  /// Whether the last sum is invalid, because a member has lost its data.
  bool failed() const { return current_->run->failed(); }
  std::size_t contributors() const;

  /// Prepared P-Reduces whose run was cached, or made. Without the lock.
  std::uint64_t cache_hits() const { return hits_; }
  std::uint64_t cache_misses() const { return misses_; }
  /// Grows with the groups. Without the lock.
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
  std::list<Cached> cache_;    // the last used first
  std::optional<Plan> built_;  // not in the cache yet
  Cached* current_ = nullptr;  // last prepared
  bool is_prepared_ = false;   // current_ is not started
  bool running_ = false;
  GroupData data_{};
  std::byte* work_ = nullptr;  // where the run computes
  BufferPtr scratch_;
  std::atomic<std::size_t> scratch_bytes_{0};
  std::atomic<std::uint64_t> hits_{0};
  std::atomic<std::uint64_t> misses_{0};
};

}  // namespace pyc
