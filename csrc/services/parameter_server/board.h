// The memory that the ranks of one node share: which of them have closed the server, the shards of the node's servers,
// and, in direct mode, the ledger.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "core/nodes.h"
#include "memory/memory.h"
#include "services/parameter_server/known.h"
#include "services/parameter_server/layout.h"
#include "services/parameter_server/ledger.h"
#include "services/parameter_server/shard.h"

namespace pyc::server {

class Board {
 public:
  /// For all ranks of the node of `rank`.
  static std::size_t bytes(const Layout& layout, const Nodes& nodes, Rank rank);

  /// The node's lowest rank constructs its board first. `shared`: zeroed, page-aligned.
  Board(std::shared_ptr<std::byte> shared, Memory& memory, const Layout& layout, const Nodes& nodes, Rank rank,
        Seconds now);

  const std::shared_ptr<std::byte>& memory() const { return shared_; }

  /// Null if the server is on another node.
  Shard* shard(std::size_t index) const { return shards_[index].get(); }

  /// Direct mode only. The caller has a turn of the pipeline.
  Ledger& ledger() { return known(ledger_); }
  const Ledger& ledger() const { return known(ledger_); }

  void close() const;
  bool has_closed(Rank rank) const { return closed(rank).load() != 0; }
  std::uint32_t closings() const { return closings_->load(); }

 private:
  static constexpr std::size_t kLine = 64;
  using Flag = std::atomic<std::uint32_t>;

  static std::size_t closed_bytes(std::size_t ranks);

  Flag& closed(Rank rank) const {
    return *reinterpret_cast<Flag*>(shared_.get() + (1 + nodes_.local_rank_of(rank)) * kLine);
  }

  std::shared_ptr<std::byte> shared_;
  const Nodes nodes_;
  const Rank rank_;
  Flag* closings_ = nullptr;
  std::optional<Ledger> ledger_;
  std::vector<std::unique_ptr<Shard>> shards_;
};

}  // namespace pyc::server
