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
#include <optional>

#include "core/types.h"
#include "node/event_count.h"
#include "node/robust_mutex.h"
#include "services/parameter_server/table.h"

namespace pyc::server {

/// Of a shard, in one `advance`: other collectives need the thread too.
constexpr std::size_t kBlocksAtOnce = 64;

struct Ticket {
  std::uint64_t number = 0;    ///< from 1
  std::uint64_t previous = 0;  ///< the exclusive one before it; 0: none
  bool exclusive = false;
  Version version = 0;  ///< of the weights that it works on, or makes
};

class Pipeline {
 public:
  static constexpr std::uint64_t kTickets = 1024;  ///< of work that is not done: a node has far fewer ranks

  struct Entry {
    alignas(64) std::atomic<std::uint64_t> ticket;
    std::atomic<std::uint64_t> passed;  // blocks
    std::atomic<Rank> owner;
    EventCount progress;
  };
  /// In memory that processes share.
  struct Shared {
    RobustMutex mutex;
    std::atomic<Rank> holder{kNoRank};  // of the mutex
    std::uint64_t next = 1;
    std::uint64_t oldest = 1;  // work before it is done
    std::uint64_t exclusive = 0;
    std::atomic<Version> version{0};  // exclusive work that has entered
    std::atomic<Rank> broken{kNoRank};
    std::atomic<Seconds> quiet_until{0};  // by the clock of who asks
    Entry entries[kTickets] = {};
  };

  /// Of so many blocks. `stride`: blocks after which those behind are told; they follow in such steps.
  Pipeline(Shared& shared, std::size_t blocks)
      : shared_(shared), blocks_(blocks), stride_(std::clamp<std::size_t>(blocks / kStrides, 1, kLongestStride)) {}

  // ---- taking a place

  /// The right to take places, for as long as it lives.
  class Turn {
   public:
    /// False if it cannot be had soon: its holder may be stopped. RankFailedError if a process died with it.
    Turn(Pipeline& pipeline, Rank rank);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    explicit operator bool() const { return held_; }
    /// Whether there are so many places.
    bool has_room(std::uint64_t tickets);
    /// Whether no work is under way.
    bool is_clear();
    Ticket enter(bool exclusive);

   private:
    void forget_done();

    Pipeline& pipeline_;
    const Rank rank_;
    const bool held_;
  };

  /// A place, in a turn of its own. Nothing if it cannot be had now.
  std::optional<Ticket> enter(bool exclusive, Rank rank);

  /// Who can enter only when it is clear asks readers to stay out for a moment: others that come and go would keep it
  /// out for ever. It ends by itself, because who asked may give up or die.
  void keep_quiet_until(Seconds then) { shared_.quiet_until.store(then); }
  bool is_quiet(Seconds now) const { return now < shared_.quiet_until.load(); }

  /// Exclusive work that has entered: who enters after it sees what it does.
  Version version() const { return shared_.version.load(std::memory_order_acquire); }

  // ---- working

  bool may_enter(const Ticket& ticket, std::size_t block) const { return before(ticket, block) == 0; }
  void passed(const Ticket& ticket, std::size_t block) {
    Entry& entry = entry_of(ticket.number);
    entry.passed.store(block + 1, std::memory_order_release);
    if ((block + 1) % stride_ == 0 || block + 1 == blocks_) entry.progress.ring();
  }
  /// All of them: it does no more.
  void passed_all(const Ticket& ticket) { passed(ticket, blocks_ - 1); }
  /// The last block of the stride of this one.
  std::size_t end_of_stride(std::size_t block) const {
    return std::min(block - block % stride_ + stride_, blocks_) - 1;
  }

  /// Until who is before it may have left the block, at most `limit` seconds (less than one).
  void sleep(const Ticket& ticket, std::size_t block, Seconds limit);
  /// Whose work is the oldest that is not done: all that comes behind waits for it.
  std::optional<Rank> slowest() const;
  /// Who has the turn.
  std::optional<Rank> holder() const;

  /// The work of a rank will not be done: nobody may go on.
  void break_by(Rank rank) {
    Rank nobody = kNoRank;
    shared_.broken.compare_exchange_strong(nobody, rank);  // the first is to blame
  }
  Rank broken() const { return shared_.broken.load(); }
  std::size_t blocks() const { return blocks_; }

 private:
  static constexpr std::size_t kStrides = 16;        // of a model: so far it is from the first to the last of a convoy
  static constexpr std::size_t kLongestStride = 16;  // longer ones save no more

  Entry& entry_of(std::uint64_t number) const { return shared_.entries[number % kTickets]; }
  bool is_before(std::uint64_t number, std::size_t block) const;
  std::uint64_t before(const Ticket& ticket, std::size_t block) const;

  Shared& shared_;
  const std::size_t blocks_;
  const std::size_t stride_;
};

}  // namespace pyc::server
