// One execution of a plan: all that changes while it runs. Runs are pooled; arming one again allocates nothing.
//
// A run is driven by one thread at a time, the holder of the engine's progress lock. It hands sends and receives to the
// transport and computes on memory; the transport's completions come back through `on_sent` and `on_received`.
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

/// Copies between a buffer that is in a memory of its own, such as a device's, and the other buffers of a plan.
class Copier {
 public:
  virtual ~Copier() = default;
  /// Begins the copy of `op`. Whoever sees that it is done tells the run, by `on_copied`; not within this call.
  virtual void copy(OpId op, std::byte* to, const std::byte* from, std::size_t bytes) = 0;
};

/// What all runs of a collective share.
struct RunContext {
  const Schedule& schedule;
  std::span<const Rank> peers;  ///< transport's rank of each rank of the schedule
  Rank members;                 ///< ranks that can contribute
  ReductionMemory& memory;
  Transport& transport;
  std::size_t& open_transfers;  ///< the engine's count of sends and receives that have not completed
  Elements elements;
  ReduceOp op;
  std::size_t element_bytes;  ///< of the accumulator; 0 for a collective of no elements
  std::uint32_t collective;   ///< id, the same on all ranks
  bool track_members;
  Trace* trace;                                      ///< null if off
  std::optional<BufferId> elsewhere = std::nullopt;  ///< in a memory of its own: only copied, by `copier`
  Copier* copier = nullptr;
};

class Run {
 public:
  /// Called for each `Signal` op as it fires; may fire triggers of the run.
  using OnSignal = std::function<void(Run&, OpId)>;

  /// `serial` names the run among all runs of the engine; it is the upper half of its cookies.
  /// `external` buffers are bound by the owner in each round (`bind`); the others belong to the run.
  Run(const RunContext& context, std::uint32_t serial, std::vector<BufferId> external, OnSignal on_signal);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Starts round `round`: ops without predecessors fire, so receives that wait for nothing are posted.
  void arm(RoundNumber round);

  /// Null, of a buffer elsewhere: nothing is copied from there or to it.
  void bind(BufferId buffer, std::byte* data) { buffers_[index(buffer)] = data; }
  /// Of the buffers that are its own.
  std::size_t memory_bytes() const { return memory_bytes_; }
  PresenceTable& presence() { return presence_; }
  const Schedule& schedule() const { return context_.schedule; }
  RoundNumber round() const { return round_; }
  std::uint32_t serial() const { return serial_; }

  void fire(OpId trigger);

  /// What this run has is not to be used: it goes on, so that every message finds its receive, without further copies
  /// from and to elsewhere, and tells all who depend on it.
  void fail() { failed_ = true; }
  /// Here, or where something in it comes from.
  bool failed() const { return failed_; }

  /// Executes whatever is ready.
  void pump();

  void on_sent(OpId op) {
    --context_.open_transfers;
    complete(op);
  }
  void on_received(OpId op, ConstBytes header, bool has_payload);
  void on_copied(OpId op) { complete(op); }

  /// Every op has completed: nothing of this run is in flight any more.
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
  std::vector<BlockRange> blocks_;   // two per op: of the slices that it touches
  std::vector<std::uint32_t> seen_;  // per op: predecessors completed
  std::vector<OpId> ready_;          // a queue from next_ready_ on; an op enters once, so it never grows
  std::size_t next_ready_ = 0;
  std::size_t remaining_ = 0;
};

}  // namespace pyc
