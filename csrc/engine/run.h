// One execution of a plan, with all state that changes while it runs. Runs are pooled; arming one again allocates
// nothing. The holder of the engine's progress lock drives a run, and reports completions to it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "diagnostics/trace.h"
#include "engine/presence.h"
#include "memory/memory.h"
#include "schedule/schedule.h"
#include "transport/transport.h"

namespace pyc {

/// Copies between a buffer in separate memory, such as a device's, and the other buffers of a plan.
class Copier {
 public:
  virtual ~Copier() = default;
  /// Begins the copy of `op`. On its completion, the owner calls `Run::on_copied`, but not within this call.
  virtual void copy(OpId op, std::byte* to, const std::byte* from, std::size_t bytes) = 0;
};

struct RunContext {
  const Schedule& schedule;
  std::span<const Rank> peers;  ///< transport rank of each rank of the schedule
  Rank members;                 ///< ranks that can contribute
  ReductionMemory& memory;
  Transport& transport;
  std::size_t& open_transfers;  ///< the engine's count of pending sends and receives
  Elements elements;
  ReduceOp op;
  std::size_t element_bytes;  ///< of the accumulator; 0 if there are no elements
  std::uint32_t collective;   ///< id, the same on all ranks
  bool track_members;
  Trace* trace;                                      ///< null if off
  std::optional<BufferId> elsewhere = std::nullopt;  ///< in separate memory: only `copier` accesses it
  Copier* copier = nullptr;
};

class Run {
 public:
  /// Called when a `Signal` op fires. May fire triggers of the run.
  using OnSignal = std::function<void(Run&, OpId)>;

  /// `serial` identifies the run within the engine; it is the upper half of its cookies. The owner binds `external`
  /// buffers in each round (`bind`); the run owns the others.
  Run(const RunContext& context, std::uint32_t serial, std::vector<BufferId> external, OnSignal on_signal);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Starts round `round`: ops without predecessors fire, so receives that wait for nothing are posted.
  void arm(RoundNumber round);

  /// `data` may be null for the buffer elsewhere, which is then not copied.
  void bind(BufferId buffer, std::byte* data) { buffers_[index(buffer)] = data; }
  /// Of the buffers that the run owns.
  std::size_t memory_bytes() const { return memory_bytes_; }
  PresenceTable& presence() { return presence_; }
  const PresenceTable& presence() const { return presence_; }
  const Schedule& schedule() const { return context_.schedule; }
  RoundNumber round() const { return round_; }
  std::uint32_t serial() const { return serial_; }

  void fire(OpId trigger);

  /// Marks the data of this run as lost. The run continues, so that every message finds its receive. It copies nothing
  /// more from or to elsewhere, and notifies all dependent ranks.
  void fail() { failed_ = true; }
  /// Whether data is lost here or on a rank that this run depends on.
  bool failed() const { return failed_; }

  void pump();

  void on_sent(OpId op) {
    --context_.open_transfers;
    complete(op);
  }
  void on_received(OpId op, ConstBytes header, bool has_payload);
  void on_copied(OpId op) { complete(op); }

  /// Every op has completed, so nothing of this run is in flight.
  bool retired() const { return remaining_ == 0; }

  static Cookie cookie(std::uint32_t serial, OpId op) {
    return (static_cast<Cookie>(serial) << 32) | static_cast<std::uint32_t>(op);
  }

 private:
  struct Operand {
    std::byte* data;
    std::size_t count;
    BlockRange blocks;
  };

  void execute(OpId id);
  bool begin_copy(OpId id);
  bool is_elsewhere(const Slice& slice) const { return context_.elsewhere == slice.buffer; }
  void complete(OpId id);
  Operand operand(OpId id, std::size_t which) const;
  std::byte* address(const Slice& slice) const;
  Rank peer(Rank rank) const { return context_.peers[static_cast<std::size_t>(rank)]; }
  Tag tag(std::uint32_t channel) const {
    return static_cast<Tag>(channel) * kTagStride + first_tag(context_.collective);
  }

  RunContext context_;
  std::uint32_t serial_;
  OnSignal on_signal_;
  RoundNumber round_ = 0;
  bool failed_ = false;
  std::vector<std::byte*> buffers_;
  std::vector<BufferPtr> owned_;
  std::size_t memory_bytes_ = 0;
  PresenceTable presence_;
  std::vector<BlockRange> blocks_;   // two per op: the blocks of the slices that it accesses
  std::vector<std::uint32_t> seen_;  // per op: completed predecessors
  std::vector<OpId> ready_;          // a queue from next_ready_ on; an op enters once, so it never grows
  std::size_t next_ready_ = 0;
  std::size_t remaining_ = 0;
};

}  // namespace pyc
