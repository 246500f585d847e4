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

/// Of the heads of so many ranks, behind a line of all.
std::size_t Board::heads_bytes(std::size_t ranks) { return in_pages(kLine + ranks * kHeadBytes); }

std::size_t Board::bytes(const Layout& layout, const Nodes& nodes, Rank rank) {
  std::size_t total = heads_bytes(nodes.neighbours(rank).size()) + ledger_bytes(layout);
  for (std::size_t s = 0; s < layout.shards(); ++s) {
    if (nodes.of(layout.options().servers[s]) == nodes.of(rank)) total += Shard::bytes(layout, s);
  }
  return total;
}

Board::Board(std::shared_ptr<std::byte> shared, Memory& memory, const Layout& layout, const Nodes& nodes, Rank rank,
             Seconds now)
    : shared_(std::move(shared)), nodes_(nodes), rank_(rank), shards_(layout.shards()) {
  static_assert(sizeof(Head) <= kHeadBytes);
  const bool first = nodes_.neighbours(rank).front() == rank;
  std::byte* next = shared_.get() + heads_bytes(nodes.neighbours(rank).size());
  closings_ = reinterpret_cast<std::atomic<std::uint32_t>*>(shared_.get());
  if (first) ::new (closings_) std::atomic<std::uint32_t>(0);
  if (layout.options().direct) {
    ledger_.emplace(layout.options(), next, first, now);
    next += ledger_bytes(layout);
  }
  for (std::size_t s = 0; s < layout.shards(); ++s) {
    if (nodes.of(layout.options().servers[s]) != nodes.of(rank)) continue;
    shards_[s] = std::make_unique<Shard>(memory, layout, s, next, first);
    next += Shard::bytes(layout, s);
  }
  ::new (&head(rank)) Head{.process = ProcessId::own(), .closed = {}, .events = {}};
  head(rank).events.check();
}

void Board::close() const {
  head(rank_).closed.store(1);
  closings_->fetch_add(1);
  for (const Rank r : nodes_.neighbours(rank_)) ring(r);
}

std::vector<Rank> Board::gone() const {
  std::vector<Rank> ranks;
  for (const Rank r : nodes_.neighbours(rank_)) {
    if (r != rank_ && state(r) == ProcessState::kGone) ranks.push_back(r);
  }
  return ranks;
}

}  // namespace pyc::server
