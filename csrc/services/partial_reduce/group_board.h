// P-Reduces among ranks of one node that reach each other's memory: several at once, of disjoint groups.
//
// Each rank has a *slot* (group_slots.h), and values go through it piece by piece, each as long as the slot: a slot of
// the host stays in the caches while the values, which may not, are read once and written once. For each piece, a
// member puts its part of the values into its slot; when all have, each reduces one part of the result from all slots
// into that of the first member; when all parts are there, each copies the result out. What is added up is added in the
// order of members, so all have the same bits, whoever comes when.
//
// Ranks meet in one word of each, in memory of the host: the group that it is in, by a *ticket*, and how far it has
// come. Tickets of a rank only grow, so a word never goes back, and "at least this far" is all that is ever asked of
// another's.
//
//   deposited   its slot holds its values; what others write there, if it is the first, is the result
//   reduced     its part of the first member's slot holds the result, and it will read no other slot
//   copied      it will not read the first member's slot again, who may then deposit anew
//
// A call does what can be done, or queues it: a rank says how far it has come when the work before that is done, so it
// is true of memory of a device too. Whoever waits has an engine to drive meanwhile; between its looks it may sleep on
// its event count, which the last to come so far rings.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "memory/group_data.h"
#include "node/event_count.h"
#include "node/process.h"
#include "services/partial_reduce/group_slots.h"

namespace pyc {

class GroupBoard {
 public:
  /// Of a rank's slot in memory of the host. With 1 MiB, the slots of 16 ranks and the values between no longer stayed
  /// in 32 MiB of cache.
  static constexpr std::size_t kLongestSlot = std::size_t{512} << 10U;

  /// Bytes of one rank's memory: a head and, behind it, a slot if that is there.
  static std::size_t bytes(std::size_t slot_bytes);

  /// Of the rank at `local` of `ranks`, whose memory is `own`: zeroed, aligned to a page, and not seen by others yet.
  /// std::runtime_error without futexes.
  GroupBoard(std::unique_ptr<GroupSlots> slots, std::size_t ranks, std::size_t local, std::shared_ptr<std::byte> own);

  /// Where the memory of another rank is; to be called before a group with it starts.
  void attach(std::size_t local, std::shared_ptr<std::byte> memory);
  bool has(std::size_t local) const { return memories_[local] != nullptr; }

  /// `members`: local ranks, ascending, this one among them; at least two. `ticket`: the same on all of them, at least
  /// 1, less than 2^40, and larger than that of any group before which one of them was in. `data`: alike on all but for
  /// the values.
  void start(std::vector<std::size_t> members, std::uint64_t ticket, const GroupData& data);
  /// Does what can be done, of one piece at most. Whether that was anything. Throws DeviceError; no call may follow.
  bool advance();
  /// Without the lock under which the other calls are: sleeps until `advance` can do something that it could not when
  /// `rings` was said, at most `limit` seconds (less than one).
  void sleep(std::uint32_t rings, Seconds limit) { at(local_).events.wait(rings, limit); }
  /// For `sleep`; nothing if `advance` can do something, or all is done.
  std::optional<std::uint32_t> rings() const;
  /// Whether the result is in its place.
  bool ended() const { return stage_ == kCopied && next_ == data_.count; }
  /// Whether something that was queued is not done.
  bool is_working() const { return is_working_; }

  std::uint64_t last_ticket() const { return ticket_; }

  /// Local ranks whose process has ended, of those whose memory is attached.
  std::vector<std::size_t> gone() const;

 private:
  enum Stage : std::uint64_t { kBegun, kDeposited, kReduced, kCopied };
  struct Head {
    alignas(64) std::atomic<std::uint64_t> reached{0};  // a `moment`
    bool present = false;                               // in that group: has values
    double weight = 0;                                  // ... and how often they count
    ProcessId process;
    alignas(64) EventCount events;
  };
  static constexpr std::uint64_t kMostPieces = std::uint64_t{1} << 22U;  // of a group
  static constexpr std::uint64_t kEndOfTickets = std::uint64_t{1} << 40U;
  static_assert(kEndOfTickets * kMostPieces * 4 == 0);  // moments take 64 bits

  static constexpr std::size_t kPage = 4096;

  Head& at(std::size_t local) const { return *reinterpret_cast<Head*>(memories_[local].get()); }
  std::uint64_t moment(Stage stage) const { return (ticket_ * kMostPieces + number_) * 4 + stage; }
  bool all_have(const std::vector<std::size_t>& members, std::uint64_t moment) const;
  void reach(Stage stage);
  void next_piece();
  bool can_step() const;
  void step();
  void deposit();
  void reduce_part();
  std::optional<double> factor() const;

  const std::unique_ptr<GroupSlots> slots_;
  const std::size_t local_;
  std::vector<std::shared_ptr<std::byte>> memories_;  // by local rank: a `Head`, and on the next page what is behind

  std::vector<std::size_t> members_;
  std::vector<std::size_t> present_;  // members with values
  std::uint64_t ticket_ = 0;
  GroupData data_{};          // all of it
  std::size_t next_ = 0;      // element that the next piece begins with
  GroupData piece_{};         // of the piece that is under way
  std::uint64_t number_ = 0;  // ... from 0
  Stage stage_ = kCopied;     // ... reached by this rank
  bool is_working_ = false;   // ... and the next one, when the work is done

  std::vector<std::size_t> readers_;  // of this rank's slot, when it was last the first member
  std::uint64_t read_ = 0;            // ... when they have read it
};

}  // namespace pyc
