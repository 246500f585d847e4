#include "services/parameter_server/board.h"

#include <new>
#include <utility>

#include "core/checked.h"

namespace pyc::server {
namespace {

std::size_t ledger_bytes(const Layout& layout) {
  return layout.options().direct ? in_pages(Ledger::bytes(layout.workers())) : 0;
}

}  // namespace

std::size_t Board::closed_bytes(std::size_t ranks) { return in_pages((1 + ranks) * kLine); }

std::size_t Board::bytes(const Layout& layout, const Nodes& nodes, Rank rank) {
  std::size_t total = closed_bytes(nodes.neighbours(rank).size()) + ledger_bytes(layout);
  for (std::size_t s = 0; s < layout.shards(); ++s) {
    if (nodes.of(layout.options().servers[s]) == nodes.of(rank)) total += Shard::bytes(layout, s);
  }
  return total;
}

Board::Board(std::shared_ptr<std::byte> shared, Memory& memory, const Layout& layout, const Nodes& nodes, Rank rank,
             Seconds now)
    : shared_(std::move(shared)), nodes_(nodes), rank_(rank), shards_(layout.shards()) {
  const bool first = nodes_.neighbours(rank).front() == rank;
  std::byte* next = shared_.get() + closed_bytes(nodes.neighbours(rank).size());
  closings_ = reinterpret_cast<Flag*>(shared_.get());
  if (first) ::new (closings_) Flag(0);
  if (layout.options().direct) {
    ledger_.emplace(layout.options(), next, first, now);
    next += ledger_bytes(layout);
  }
  for (std::size_t s = 0; s < layout.shards(); ++s) {
    if (nodes.of(layout.options().servers[s]) != nodes.of(rank)) continue;
    shards_[s] = std::make_unique<Shard>(memory, layout, s, next, first);
    next += Shard::bytes(layout, s);
  }
  ::new (&closed(rank)) Flag(0);
}

void Board::close() const {
  closed(rank_).store(1);
  closings_->fetch_add(1);
}

}  // namespace pyc::server
