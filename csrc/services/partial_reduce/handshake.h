// The handshake of an explicit group. Each member announces its arrival and its arguments to the others, and the
// P-Reduce begins when all have arrived with the same arguments. Mistakes of callers are therefore found before a value
// moves, a stall report names the missing ranks, and no rank waits for one that has left the communicator or withdrawn.
//
// Members enter their common P-Reduces in the same order, so each P-Reduce takes the oldest arrival of each member. A
// member that refuses a call sends its reason instead of an arrival. All members then drop the arrivals of that
// P-Reduce; later ones are not affected. Under the engine's progress lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/collective.h"
#include "engine/engine.h"
#include "memory/group_data.h"
#include "services/partial_reduce/preduce_messages.h"

namespace pyc {

class Handshake {
 public:
  using Reason = Withdrawal::Reason;

  /// The arguments outlive this object.
  Handshake(Engine& engine, const PreduceMailbox& mailbox);

  struct Wanted {
    const std::vector<Rank>& members;  ///< ascending, with this rank
    const GroupData& data;
    const std::string& algorithm;
    bool on_device;
    std::uint32_t caller;  ///< index in kCallers
  };
  /// Announces this rank's arrival. `ticket` and `handle` are for shared memory; otherwise 0 and empty.
  void come(const Wanted& wanted, std::uint64_t ticket, const std::string& handle);
  /// A hash of members, count, type and operation. It needs no serial number: no P-Reduce ends before all members have
  /// entered it, so they cannot be in different ones of the same group.
  std::uint64_t number() const { return number_; }
  /// Refuses the next P-Reduce of `members`, which ends with that on all of them.
  void refuse(const std::vector<Rank>& members, const std::string& reason);

  bool has_come(Rank member) const;
  bool complete() const;
  /// Drops the arrivals: a member may enter its next group before this rank has ended this one.
  void begin();

  /// The reason why the current P-Reduce can never begin or end; otherwise null.
  std::exception_ptr obstacle() const;
  std::exception_ptr mismatch() const;
  /// Ends the current P-Reduce with a MismatchError if a member has refused it; otherwise null.
  std::exception_ptr take_refusal();
  /// This rank takes part in no further P-Reduce.
  void withdraw(Reason reason);

  // Of a member that has arrived; otherwise 0 or empty.
  std::uint64_t ticket_of(Rank member) const;
  std::string handle_of(Rank member) const;

  void arrived(Rank from, const Arrival& message, std::span<const char> handle);
  void refused(Rank from, std::span<const char> piece);
  void withdrawn(Rank from, const Withdrawal& message) { withdrawn_[index(from)] = message; }

 private:
  struct Come {
    Arrival arrival;
    std::string handle;
    std::optional<std::string> refusal;  // replaces the fields above
  };

  static std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }
  void keep(Rank from, Come come);
  void skip(const std::vector<Rank>& members);
  const Come* oldest(Rank member) const;
  bool will_come(Rank member) const;
  std::exception_ptr error_of(Rank member) const;

  Engine& engine_;
  const PreduceMailbox& mailbox_;
  std::vector<std::deque<Come>> arrivals_;            // by rank: of groups that have not begun here, oldest first
  std::vector<std::uint32_t> owed_;                   // by rank: arrivals of refused P-Reduces still to drop
  std::vector<std::string> reasons_;                  // by rank: pieces of a refusal
  std::vector<std::optional<Withdrawal>> withdrawn_;  // by rank
  std::vector<Rank> members_;
  Arrival own_{};
  std::uint64_t number_ = 0;
  bool begun_ = false;
};

}  // namespace pyc
