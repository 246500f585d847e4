// The plan of one rank: an immutable DAG of operations. Each execution of a plan is a run, which has all mutable state
// (engine/run.h).
//
// An op fires when `need` of its predecessors have completed. The count *equals* `need` once, so an op fires exactly
// once per run, however many predecessors complete afterwards. eager-SGD (section 4.1.1) calls this consumable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/types.h"

namespace pyc {

enum class OpId : std::uint32_t {};
enum class BufferId : std::uint32_t {};
constexpr std::size_t index(OpId id) { return static_cast<std::size_t>(id); }
constexpr std::size_t index(BufferId id) { return static_cast<std::size_t>(id); }

/// Consecutive elements of a buffer. Never empty in a valid plan.
struct Slice {
  BufferId buffer{};
  std::size_t first = 0;
  std::size_t count = 0;

  std::size_t end() const { return first + count; }
  /// Elements [offset, offset + n) of this slice. Throws ScheduleError past its end.
  Slice part(std::size_t offset, std::size_t n) const;
  friend bool operator==(const Slice&, const Slice&) = default;
};

bool overlap(const Slice& a, const Slice& b);

/// The slices that an allreduce reads and writes; the same slice if it works in place.
struct Operands {
  Slice in;
  Slice out;
};

// The actions. A channel numbers the messages of a plan from one rank to another: the n-th send to a peer matches that
// peer's n-th receive from here.

struct Send {
  Slice from;
  Rank to;
  std::uint32_t channel;
};
struct Recv {
  Slice into;
  Rank from;
  std::uint32_t channel;
};
struct Reduce {
  Slice from;
  Slice into;
};
struct Copy {
  Slice from;
  Slice into;
};
/// Joins control flow.
struct Join {};
/// The owner of the run fires it.
struct Trigger {};
/// Notifies the owner of the run.
struct Signal {};
using Action = std::variant<Send, Recv, Reduce, Copy, Join, Trigger, Signal>;

struct Access {
  Slice slice;
  bool writes;
};
struct AccessList {
  Access list[2];
  std::size_t count = 0;
  const Access* begin() const { return list; }
  const Access* end() const { return list + count; }
};
AccessList accesses(const Action& action);

struct Op {
  Action action;
  std::string name;
  std::uint32_t need = 0;
  std::uint32_t predecessors = 0;  ///< All predecessors; need < predecessors is an or-join.
  std::vector<OpId> next;
};

struct BlockRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

class Schedule {
 public:
  struct Buffer {
    std::size_t count;
    std::string name;
  };

  /// Validates the plan. Throws ScheduleError, which names the invalid op.
  Schedule(Rank rank, Rank size, std::vector<Buffer> buffers, std::vector<Op> ops);

  Rank rank() const { return rank_; }
  Rank size() const { return size_; }
  std::span<const Buffer> buffers() const { return buffers_; }
  std::span<const Op> ops() const { return ops_; }
  const Op& op(OpId id) const { return ops_[index(id)]; }
  std::size_t edges() const;

  /// Number of distinct channels to or from any one peer.
  std::uint32_t channels() const { return channels_; }

  // Blocks: every buffer is cut where a slice of an op begins or ends. A run tracks contributors per block.
  std::uint32_t blocks() const { return block_count_; }
  BlockRange blocks_of(const Slice& slice) const;

  /// Buffers that a run no longer uses once `op` has completed: every op on them must complete before it.
  std::vector<BufferId> unused_after(OpId op) const;

  std::string describe(OpId id) const;
  std::string text() const;
  /// Graphviz, in the colors of eager-SGD Fig. 6. A dashed border marks an or-join.
  std::string dot() const;

  // Copies with a flaw, for tests of the checker.
  Schedule without_edge(OpId before, OpId after) const;
  Schedule with_need(OpId id, std::uint32_t need) const;

 private:
  std::string describe(const Slice& slice) const;
  void validate() const;
  void validate(const Op& op, OpId id) const;
  void cut_blocks();

  Rank rank_;
  Rank size_;
  std::vector<Buffer> buffers_;
  std::vector<Op> ops_;
  std::uint32_t channels_ = 0;
  std::uint32_t block_count_ = 0;
  std::vector<std::vector<std::size_t>> cuts_;  // per buffer: where its blocks begin
  std::vector<std::uint32_t> first_block_;      // per buffer
};

}  // namespace pyc
