// Shared memory of a node's ranks: the process of each rank, and an event count by which the others wake it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/checked.h"
#include "core/nodes.h"
#include "node/event_count.h"
#include "node/process.h"

namespace pyc {

class NodeRanks {
 public:
  static std::size_t bytes(std::size_t ranks) { return in_pages(ranks * sizeof(Head)); }

  /// `memory` is zeroed and aligned to a page. Throws std::runtime_error if the system has no futexes.
  NodeRanks(std::byte* memory, const Nodes& nodes, Rank own);

  ProcessState state(Rank rank) const { return state_of(head(rank).process); }
  std::vector<Rank> gone() const;

  void notify(Rank rank) const { head(rank).events.ring(); }
  /// Number of notifications. Read it before the last check of the condition, and pass it to `sleep`.
  std::uint32_t notified() const { return head(own_).events.rings(); }
  /// Sleeps until this rank is notified, unless it was since `seen`; at most `limit` seconds (less than one).
  void sleep(std::uint32_t seen, Seconds limit) const { head(own_).events.wait(seen, limit); }

 private:
  static constexpr std::size_t kLine = 64;

  struct Head {
    alignas(kLine) ProcessId process;
    alignas(kLine) EventCount events;
  };

  Head& head(Rank rank) const { return reinterpret_cast<Head*>(memory_)[nodes_.local_rank_of(rank)]; }

  std::byte* const memory_;
  const Nodes nodes_;
  const Rank own_;
};

}  // namespace pyc
