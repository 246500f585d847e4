// Orders the work of processes on a shard in shared memory. Each piece of work takes a ticket and follows earlier work
// from block to block, so that several processes work at once and each sees a consistent shard.
//
// *Exclusive* work changes the weights and enters a block after all earlier work. *Shared* work does not change them
// and enters a block after earlier exclusive work. Tickets are kept in a ring, and an entry is reused when its work is
// done.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/types.h"
#include "node/event_count.h"
#include "node/robust_mutex.h"
#include "services/parameter_server/table.h"

namespace pyc::server {

/// Limits one `advance` on a shard: other collectives need the thread too.
constexpr std::size_t kBlocksAtOnce = 64;

struct Ticket {
  std::uint64_t number = 0;    ///< from 1
  std::uint64_t previous = 0;  ///< the last exclusive one before it; 0: none
  bool exclusive = false;
  Version version = 0;  ///< the version that exclusive work creates, or shared work sees
};

class Pipeline {
 public:
  static constexpr std::uint64_t kTickets = 1024;  ///< unfinished tickets at most; a node has far fewer ranks

  struct Entry {
    alignas(64) std::atomic<std::uint64_t> ticket;
    std::atomic<std::uint64_t> passed;  // blocks that the work has left
    std::atomic<Rank> owner;
    EventCount progress;
  };
  /// In memory that processes share. The mutex protects `next`, `oldest` and `exclusive`.
  struct Shared {
    RobustMutex mutex;
    std::atomic<Rank> holder{kNoRank};  // owner of the mutex
    std::uint64_t next = 1;
    std::uint64_t oldest = 1;  // all tickets before it are done
    std::uint64_t exclusive = 0;
    std::atomic<Version> version{0};  // number of exclusive tickets taken
    std::atomic<Rank> broken{kNoRank};
    std::atomic<Seconds> quiet_until{0};  // time on the callers' common clock
    Entry entries[kTickets] = {};
  };

  /// Work notifies its followers after each stride of blocks, and they advance in strides.
  Pipeline(Shared& shared, std::size_t blocks)
      : shared_(shared), blocks_(blocks), stride_(std::clamp<std::size_t>(blocks / kStrides, 1, kLongestStride)) {}

  // ---- tickets

  /// The right to take tickets, held while this object lives.
  class Turn {
   public:
    /// Tests false if the mutex is not free soon; its owner may be stopped. RankFailedError if its owner died.
    Turn(Pipeline& pipeline, Rank rank);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    explicit operator bool() const { return held_; }
    bool has_room(std::uint64_t tickets);
    bool is_clear();
    Ticket enter(bool exclusive);

   private:
    void forget_done();

    Pipeline& pipeline_;
    const Rank rank_;
    const bool held_;
  };

  /// Takes a ticket in a turn of its own. Returns nothing if that is not possible now.
  std::optional<Ticket> enter(bool exclusive, Rank rank);

  /// Work that can enter only an idle pipeline asks readers to stay out for a moment, because a stream of readers would
  /// lock it out indefinitely. The request expires, because the requester may give up or die.
  void keep_quiet_until(Seconds then) { shared_.quiet_until.store(then); }
  bool is_quiet(Seconds now) const { return now < shared_.quiet_until.load(); }

  /// Number of exclusive tickets taken. Work that enters later sees their effect.
  Version version() const { return shared_.version.load(std::memory_order_acquire); }

  // ---- work

  bool may_enter(const Ticket& ticket, std::size_t block) const { return before(ticket, block) == 0; }
  void passed(const Ticket& ticket, std::size_t block) {
    Entry& entry = entry_of(ticket.number);
    entry.passed.store(block + 1, std::memory_order_release);
    if ((block + 1) % stride_ == 0 || block + 1 == blocks_) entry.progress.ring();
  }
  std::size_t blocks_passed(const Ticket& ticket) const { return entry_of(ticket.number).passed.load(); }
  void passed_all(const Ticket& ticket) { passed(ticket, blocks_ - 1); }
  std::size_t end_of_stride(std::size_t block) const {
    return std::min(block - block % stride_ + stride_, blocks_) - 1;
  }

  /// Sleeps until earlier work may have left the block, at most `limit` seconds (less than one).
  void sleep(const Ticket& ticket, std::size_t block, Seconds limit);
  /// The first version, before any ticket.
  void begin_at(Version version) { shared_.version.store(version); }
  /// Work of these ranks, which have died, is no longer waited for unless `is_kept`.
  using IsKept = std::function<bool(std::uint64_t ticket, Rank owner, std::size_t passed)>;
  void pass_for(const std::vector<Rank>& dead, const IsKept& is_kept);
  /// The rank with the oldest unfinished work.
  std::optional<Rank> slowest() const;
  std::optional<Rank> holder() const;

  /// The work of a rank was interrupted: the weights are unusable.
  void break_by(Rank rank) {
    Rank nobody = kNoRank;
    shared_.broken.compare_exchange_strong(nobody, rank);  // the first rank is to blame
  }
  Rank broken() const { return shared_.broken.load(); }
  std::size_t blocks() const { return blocks_; }

 private:
  static constexpr std::size_t kStrides = 16;        // of a shard: about as many workers can work on it at once
  static constexpr std::size_t kLongestStride = 16;  // longer strides save nothing

  Entry& entry_of(std::uint64_t number) const { return shared_.entries[number % kTickets]; }
  bool is_before(std::uint64_t number, std::size_t block) const;
  std::uint64_t before(const Ticket& ticket, std::size_t block) const;

  Shared& shared_;
  const std::size_t blocks_;
  const std::size_t stride_;
};

}  // namespace pyc::server
