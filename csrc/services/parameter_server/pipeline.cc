#include "services/parameter_server/pipeline.h"

#include <algorithm>

namespace pyc::server {
namespace {

constexpr Seconds kPatience = 1e-3;  // the mutex is held for microseconds

}  // namespace

// ------------------------------------------------------------------------------------------------ tickets

Pipeline::Turn::Turn(Pipeline& pipeline, Rank rank)
    : pipeline_(pipeline), rank_(rank), held_(pipeline.shared_.mutex.try_lock_for(kPatience)) {
  if (held_) pipeline_.shared_.holder.store(rank_);
}

Pipeline::Turn::~Turn() {
  if (!held_) return;
  pipeline_.shared_.holder.store(kNoRank);
  pipeline_.shared_.mutex.unlock();
}

bool Pipeline::Turn::has_room(std::uint64_t tickets) {
  Shared& shared = pipeline_.shared_;
  const auto is_full = [&] { return shared.next + tickets - shared.oldest > kTickets; };
  if (is_full()) forget_done();
  return !is_full();
}

bool Pipeline::Turn::is_clear() {
  forget_done();
  return pipeline_.shared_.oldest == pipeline_.shared_.next;
}

void Pipeline::Turn::forget_done() {
  Shared& shared = pipeline_.shared_;
  while (shared.oldest < shared.next && !pipeline_.is_before(shared.oldest, pipeline_.blocks_ - 1)) ++shared.oldest;
}

Ticket Pipeline::Turn::enter(bool exclusive) {
  Shared& shared = pipeline_.shared_;
  Entry& entry = pipeline_.entry_of(shared.next);
  entry.owner.store(rank_);  // before `passed`, see pass_for
  entry.passed.store(0);
  entry.ticket.store(shared.next, std::memory_order_release);
  if (exclusive) shared.version.fetch_add(1);
  const Ticket ticket{shared.next, shared.exclusive, exclusive, shared.version.load()};
  if (exclusive) shared.exclusive = shared.next;
  ++shared.next;
  return ticket;
}

std::optional<Ticket> Pipeline::enter(bool exclusive, Rank rank) {
  Turn turn(*this, rank);
  if (!turn || !turn.has_room(1)) return std::nullopt;
  return turn.enter(exclusive);
}

// ------------------------------------------------------------------------------------------------ order

/// Whether the work with that ticket has not left the block.
bool Pipeline::is_before(std::uint64_t number, std::size_t block) const {
  const Entry& entry = entry_of(number);
  if (entry.passed.load(std::memory_order_acquire) > block) return false;
  return entry.ticket.load(std::memory_order_acquire) == number;  // otherwise the entry was reused: done
}

/// The ticket of the oldest work that `ticket` waits for in the block; 0: none.
std::uint64_t Pipeline::before(const Ticket& ticket, std::size_t block) const {
  const std::uint64_t oldest = ticket.number > kTickets ? ticket.number - kTickets + 1 : 1;
  const std::uint64_t first = std::max(ticket.previous, oldest);
  const std::uint64_t end = ticket.exclusive ? ticket.number : std::min(ticket.previous + 1, ticket.number);
  for (std::uint64_t t = first; t < end; ++t) {
    if (is_before(t, block)) return t;
  }
  return 0;
}

void Pipeline::sleep(const Ticket& ticket, std::size_t block, Seconds limit) {
  const std::uint64_t number = before(ticket, block);
  if (number == 0) return;
  EventCount& progress = entry_of(number).progress;
  const std::uint32_t rings = progress.rings();
  if (is_before(number, block)) progress.wait(rings, limit);
}

void Pipeline::pass_for(const std::vector<Rank>& dead, const IsKept& is_kept) {
  for (Entry& entry : shared_.entries) {
    const std::size_t passed = entry.passed.load();
    const Rank owner = entry.owner.load();
    if (passed >= blocks_ || entry.ticket.load() == 0 || std::ranges::find(dead, owner) == dead.end()) continue;
    if (!is_kept(entry.ticket.load(), owner, passed)) entry.passed.store(blocks_);
  }
}

std::optional<Rank> Pipeline::slowest() const {
  std::optional<Rank> owner;
  std::uint64_t oldest = 0;
  for (const Entry& entry : shared_.entries) {
    const std::uint64_t ticket = entry.ticket.load(std::memory_order_acquire);
    if (ticket == 0 || !is_before(ticket, blocks_ - 1) || (oldest != 0 && ticket > oldest)) continue;
    oldest = ticket;
    owner = entry.owner.load();
  }
  return owner;
}

std::optional<Rank> Pipeline::holder() const {
  const Rank rank = shared_.holder.load();
  return rank == kNoRank ? std::nullopt : std::optional(rank);
}

}  // namespace pyc::server
