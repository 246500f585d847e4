// What the ranks of one node know of each other by shared memory, whatever the service: which process each one is, and
// a word by which the others wake it.
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
  /// Of the memory of so many ranks, in whole pages.
  static std::size_t bytes(std::size_t ranks) { return in_pages(ranks * sizeof(Head)); }

  /// Of the rank `own`. `memory`: zeroed, aligned to a page. std::runtime_error without futexes.
  NodeRanks(std::byte* memory, const Nodes& nodes, Rank own);

  ProcessState state(Rank rank) const { return state_of(head(rank).process); }
  /// Other ranks whose process has ended.
  std::vector<Rank> gone() const;

  /// Wakes a rank that sleeps.
  void notify(Rank rank) const { head(rank).events.ring(); }
  /// How often this rank was notified; to be read before the condition is looked at the last time.
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
