// In which order processes that share memory work on a shard, block by block: each takes a ticket, and follows those
// before it from block to block, so that several work at once and each sees the shard as of one moment.
//
// Two kinds of work. *Exclusive* work changes the weights: it enters a block after all work before it. *Shared* work
// does not: it enters a block after the exclusive work before it. Tickets are kept in a ring; one is taken again when
// its work is done.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <optional>

#include "core/types.h"
#include "node/robust_mutex.h"
#include "services/parameter_server/table.h"

namespace pyc::server {

struct Ticket {
  std::uint64_t number = 0;    ///< from 1
  std::uint64_t previous = 0;  ///< the exclusive one before it; 0: none
  bool exclusive = false;
  Version version = 0;  ///< of the weights that it works on, or makes
};

class Pipeline {
 public:
  static constexpr std::uint64_t kTickets = 256;  ///< more than ranks of a node can hold: each holds three at most

  struct Entry {
    std::atomic<std::uint64_t> ticket;
    std::atomic<std::uint64_t> passed;  // blocks
    std::atomic<Rank> owner;
  };
  /// In memory that processes share.
  struct Shared {
    RobustMutex mutex;
    std::uint64_t next = 1;
    std::uint64_t exclusive = 0;
    std::atomic<Version> version{0};  // exclusive work that has entered
    std::atomic<Rank> broken{kNoRank};
    Entry entries[kTickets] = {};
  };

  Pipeline(Shared& shared, std::size_t blocks) : shared_(shared), blocks_(blocks) {}

  /// Whether the next `tickets` can be had.
  bool has_room(std::uint64_t tickets) const {
    const std::lock_guard lock(shared_.mutex);
    for (std::uint64_t t = shared_.next; t < shared_.next + tickets; ++t) {
      if (is_open(entry_of(t))) return false;
    }
    return true;
  }

  /// Nothing if work of long ago is not done. RankFailedError if a process died in here.
  std::optional<Ticket> enter(bool exclusive, Rank owner) {
    const std::lock_guard lock(shared_.mutex);
    Entry& entry = entry_of(shared_.next);
    if (is_open(entry)) return std::nullopt;
    entry.passed.store(0);
    entry.owner.store(owner);
    entry.ticket.store(shared_.next, std::memory_order_release);
    if (exclusive) shared_.version.fetch_add(1);
    const Ticket ticket{shared_.next, shared_.exclusive, exclusive, shared_.version.load()};
    if (exclusive) shared_.exclusive = shared_.next;
    ++shared_.next;
    return ticket;
  }

  /// Exclusive work that has entered: who enters after it sees what it does.
  Version version() const { return shared_.version.load(std::memory_order_acquire); }

  bool may_enter(const Ticket& ticket, std::size_t block) const { return !hindering(ticket, block); }
  void passed(const Ticket& ticket, std::size_t block) {
    entry_of(ticket.number).passed.store(block + 1, std::memory_order_release);
  }
  /// Whose work it waits for before it enters a block.
  std::optional<Rank> hindering(const Ticket& ticket, std::size_t block) const {
    if (!ticket.exclusive) return hindering(ticket.previous, block);
    const std::uint64_t oldest = ticket.number > kTickets ? ticket.number - kTickets + 1 : 1;
    for (std::uint64_t t = std::max(ticket.previous, oldest); t < ticket.number; ++t) {
      if (const auto rank = hindering(t, block)) return rank;
    }
    return std::nullopt;
  }

  /// The work of a rank will not be done: nobody may go on.
  void break_by(Rank rank) {
    Rank nobody = kNoRank;
    shared_.broken.compare_exchange_strong(nobody, rank);  // the first is to blame
  }
  Rank broken() const { return shared_.broken.load(); }
  std::size_t blocks() const { return blocks_; }

 private:
  bool is_open(const Entry& entry) const { return entry.ticket.load() != 0 && entry.passed.load() < blocks_; }
  Entry& entry_of(std::uint64_t number) const { return shared_.entries[number % kTickets]; }
  std::optional<Rank> hindering(std::uint64_t number, std::size_t block) const {
    if (number == 0) return std::nullopt;
    const Entry& entry = entry_of(number);
    const Rank owner = entry.owner.load();
    if (entry.passed.load(std::memory_order_acquire) > block) return std::nullopt;
    if (entry.ticket.load(std::memory_order_acquire) != number) return std::nullopt;  // taken again: it was done
    return owner;
  }

  Shared& shared_;
  const std::size_t blocks_;
};

}  // namespace pyc::server
