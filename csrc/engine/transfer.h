// Moves an array from one rank to another, again and again. It is a run of a plan with one message, so the transfer
// before must have ended on both ranks; who may send, and when, is the matter of the owner's messages.
//
// Under the engine's progress lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "engine/run.h"
#include "schedule/schedule.h"

namespace pyc {

class Transfer {
 public:
  /// Of `bytes` to `peer` or, unless `sends`, from it. Transfers of a collective between two ranks share a tag, so they
  /// start in the same order on both.
  Transfer(Engine& engine, std::uint32_t collective, Rank peer, bool sends, std::size_t bytes);

  /// Sends `values`, or receives into them. `number` is the same on both ranks. The sender may send nothing: null.
  void start(std::uint64_t number, std::byte* values);
  /// Whether nothing is in flight, and values are in place.
  bool ended() const { return run_.retired(); }
  /// Of the newest start.
  std::uint64_t number() const { return run_.round(); }
  /// Whether the other rank has sent values. After the end.
  bool has_received() const { return run_.presence().at(plan_.schedule.blocks_of(plan_.values).first).present(); }

 private:
  struct Plan {
    Schedule schedule;
    Slice values;
    OpId release;
  };
  static Plan plan(bool sends, std::size_t bytes);
  RunContext context(Engine& engine, std::uint32_t collective) const;

  const bool sends_;
  const std::vector<Rank> peers_;  // by rank of the plan
  const Plan plan_;
  Run run_;
};

}  // namespace pyc
