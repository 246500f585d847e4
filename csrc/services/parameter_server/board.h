// What the ranks of one node share: what each says of itself, the shards of the node's servers, and the ledger if
// everybody is a server.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "core/nodes.h"
#include "memory/memory.h"
#include "node/event_count.h"
#include "node/process.h"
#include "services/parameter_server/known.h"
#include "services/parameter_server/layout.h"
#include "services/parameter_server/ledger.h"
#include "services/parameter_server/shard.h"

namespace pyc::server {

class Board {
 public:
  /// Of all ranks of the node of `rank`.
  static std::size_t bytes(const Layout& layout, const Nodes& nodes, Rank rank);

  /// Of one of them; the node's lowest rank makes it first. `shared`: zeroed, aligned to a page. std::runtime_error
  /// without futexes.
  Board(std::shared_ptr<std::byte> shared, Memory& memory, const Layout& layout, const Nodes& nodes, Rank rank,
        Seconds now);

  /// All of it.
  const std::shared_ptr<std::byte>& memory() const { return shared_; }

  /// By index of the server; null if it is on another node.
  Shard* shard(std::size_t index) const { return shards_[index].get(); }

  /// Of whoever pushes himself: in a turn of the pipeline.
  Ledger& ledger() { return known(ledger_); }
  const Ledger& ledger() const { return known(ledger_); }

  void ring(Rank rank) const { head(rank).events.ring(); }
  std::uint32_t rings() const { return head(rank_).events.rings(); }
  /// Until this rank is rung for, at most `limit` seconds (less than one).
  void sleep(std::uint32_t rings, Seconds limit) const { head(rank_).events.wait(rings, limit); }

  /// This rank closes it: says so, and wakes the others.
  void close() const;
  bool has_closed(Rank rank) const { return head(rank).closed.load() != 0; }
  /// How many ranks have closed it.
  std::uint32_t closings() const { return closings_->load(); }
  ProcessState state(Rank rank) const { return state_of(head(rank).process); }
  /// Ranks whose process has ended.
  std::vector<Rank> gone() const;

 private:
  static constexpr std::size_t kLine = 64;
  static constexpr std::size_t kHeadBytes = 256;

  static std::size_t heads_bytes(std::size_t ranks);

  struct Head {  // NOLINT(clang-analyzer-optin.performance.Padding): the bell is on a cache line of its own
    ProcessId process;
    std::atomic<std::uint32_t> closed;
    alignas(64) EventCount events;
  };

  Head& head(Rank rank) const {
    return *reinterpret_cast<Head*>(shared_.get() + kLine + nodes_.local_rank_of(rank) * kHeadBytes);
  }

  std::shared_ptr<std::byte> shared_;
  const Nodes nodes_;
  const Rank rank_;
  std::atomic<std::uint32_t>* closings_ = nullptr;
  std::optional<Ledger> ledger_;
  std::vector<std::unique_ptr<Shard>> shards_;
};

}  // namespace pyc::server
