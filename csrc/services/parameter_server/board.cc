#include "services/parameter_server/board.h"

#include <new>
#include <utility>

namespace pyc::server {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kMutexBytes = 64;
constexpr std::size_t in_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::size_t ledger_bytes(const Layout& layout) {
  return layout.options().direct ? in_pages(kMutexBytes + Ledger::bytes(layout.workers())) : 0;
}

}  // namespace

std::size_t Board::bytes(const Layout& layout, const Nodes& nodes, Rank rank) {
  std::size_t total = in_pages(nodes.neighbours(rank).size() * kHeadBytes) + ledger_bytes(layout);
  for (std::size_t s = 0; s < layout.shards(); ++s) {
    if (nodes.of(layout.options().servers[s]) == nodes.of(rank)) total += Shard::bytes(layout, s);
  }
  return total;
}

Board::Board(std::shared_ptr<std::byte> shared, Memory& memory, const Layout& layout, const Nodes& nodes, Rank rank,
             Seconds now)
    : shared_(std::move(shared)), nodes_(nodes), rank_(rank), shards_(layout.shards()) {
  static_assert(sizeof(Head) <= kHeadBytes && sizeof(RobustMutex) <= kMutexBytes);
  const bool first = nodes_.neighbours(rank).front() == rank;
  std::byte* next = shared_.get() + in_pages(nodes.neighbours(rank).size() * kHeadBytes);
  if (layout.options().direct) {
    mutex_ = first ? ::new (next) RobustMutex : reinterpret_cast<RobustMutex*>(next);
    ledger_.emplace(layout.options(), next + kMutexBytes, first, now);
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

std::vector<Rank> Board::gone() const {
  std::vector<Rank> ranks;
  for (const Rank r : nodes_.neighbours(rank_)) {
    if (r != rank_ && state(r) == ProcessState::kGone) ranks.push_back(r);
  }
  return ranks;
}

}  // namespace pyc::server
