// P-Reduces among ranks of one node that reach each other's memory. Disjoint groups run concurrently.
//
// Values pass piece by piece through one *slot* per rank (group_slots.h), which stays in the caches on a host. For each
// piece, every member puts its values into its slot; then each reduces one part of the result from all slots into the
// first member's slot; then each copies the result out. Values are added in the order of members, so all get the same
// bits.
//
// Ranks synchronize by one word each, in host memory: the *ticket* of the group, and the progress in it. A rank's
// tickets only grow, so a word never decreases, and other ranks only wait for "at least this far".
//
//   deposited   its slot has its values; if it is the first member, others may overwrite them with the result
//   reduced     its part of the result is in the first member's slot, and it reads no other slot
//   copied      it no longer reads the first member's slot, whose owner may then deposit again
//
// A rank announces progress after its work is done, also on a device. A waiting rank drives its engine; between two
// passes it may sleep on its event count, which the last rank to arrive rings.
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
  /// Limit of a host slot. With 1 MiB, the slots and values of 16 ranks did not stay in 32 MiB of cache.
  static constexpr std::size_t kLongestSlot = std::size_t{512} << 10U;

  /// Memory of one rank: a head, then a slot if that is in host memory.
  static std::size_t bytes(std::size_t slot_bytes);

  /// `own` is zeroed, aligned to a page, and not yet seen by others. Throws std::runtime_error without futexes.
  GroupBoard(std::unique_ptr<GroupSlots> slots, std::size_t ranks, std::size_t local, std::shared_ptr<std::byte> own);

  /// Sets the memory of a rank, before a group with it starts.
  void attach(std::size_t local, std::shared_ptr<std::byte> memory);
  bool has(std::size_t local) const { return memories_[local] != nullptr; }

  /// `members`: local ranks, ascending, with this one; at least two. `ticket`: the same on all members, at least 1,
  /// below 2^40, and larger than in any earlier group of a member. `data`: the same on all, except values and weight.
  void start(std::vector<std::size_t> members, std::uint64_t ticket, const GroupData& data);
  /// Progresses by one piece at most. Returns whether anything changed. Throws DeviceError; no call may follow.
  bool advance();
  /// Sleeps until another rank rings after `rings`, at most `limit` seconds (less than one). Without the lock.
  void sleep(std::uint32_t rings, Seconds limit) { at(local_).events.wait(rings, limit); }
  /// For `sleep`; nullopt if `advance` can do something, queued work is pending, or all is done.
  std::optional<std::uint32_t> rings() const;
  bool ended() const { return stage_ == kCopied && next_ == data_.count; }
  bool is_working() const { return is_working_; }

  std::uint64_t last_ticket() const { return ticket_; }

  /// Attached local ranks whose process has ended.
  std::vector<std::size_t> gone() const;

 private:
  enum Stage : std::uint64_t { kBegun, kDeposited, kReduced, kCopied };
  struct Head {
    alignas(64) std::atomic<std::uint64_t> reached{0};  // a `moment`
    bool present = false;                               // has values in that group
    double weight = 0;                                  // weight of these values
    ProcessId process;
    alignas(64) EventCount events;
  };
  static constexpr std::uint64_t kMostPieces = std::uint64_t{1} << 22U;  // per group
  static constexpr std::uint64_t kEndOfTickets = std::uint64_t{1} << 40U;
  static_assert(kEndOfTickets * kMostPieces * 4 == 0);  // a moment takes 64 bits

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
  std::vector<std::shared_ptr<std::byte>> memories_;  // by local rank: a `Head`, then a slot on the next page

  std::vector<std::size_t> members_;
  std::vector<std::size_t> present_;  // members with values
  std::uint64_t ticket_ = 0;
  GroupData data_{};
  std::size_t next_ = 0;      // first element of the next piece
  GroupData piece_{};         // the current piece
  std::uint64_t number_ = 0;  // its number, from 0
  Stage stage_ = kCopied;     // reached by this rank in it
  bool is_working_ = false;   // work for the next stage is queued

  std::vector<std::size_t> readers_;  // of this rank's slot, when it was last the first member
  std::uint64_t read_ = 0;            // moment at which they have read it
};

}  // namespace pyc
