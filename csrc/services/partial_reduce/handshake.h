// How the members of a group that the application gives come together. Each tells the others that it is here and what
// for; a P-Reduce begins when all are here for the same. So a mistake of the caller is found before a value moves, a
// stall can name who has not come, and nobody waits for a rank that is known to come no more: it has left the
// communicator, or withdrawn.
//
// Members come to the P-Reduces that they share in the same order. So each P-Reduce takes one arrival, the oldest, of
// each member. A call that is refused on one member is refused on all: that member sends its reason in place of an
// arrival, and the others drop the arrivals of that P-Reduce. Later P-Reduces are not affected.
//
// Under the engine's progress lock.
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

  /// Of `engine`'s rank. What is referred to outlives this.
  Handshake(Engine& engine, const PreduceMailbox& mailbox);

  /// What the members have to agree on.
  struct Wanted {
    const std::vector<Rank>& members;  ///< ascending, this rank among them
    const GroupData& data;
    const std::string& algorithm;
    bool on_device;
    std::uint32_t caller;  ///< in kCallers
  };
  /// Comes, and says so to the others. `ticket` and `handle`: for shared memory, 0 and empty without.
  void come(const Wanted& wanted, std::uint64_t ticket, const std::string& handle);
  /// What is the same on all members, in one number. Not how often: a P-Reduce ends nowhere before all members have
  /// come to it, so they cannot be at different ones of the same group.
  std::uint64_t number() const { return number_; }
  /// Says to the other members why this rank refuses to come to their next P-Reduce, which so ends here.
  void refuse(const std::vector<Rank>& members, const std::string& reason);

  bool has_come(Rank member) const;
  bool complete() const;
  /// Forgets who has come: one may come to the next group before this rank has ended this one.
  void begin();

  /// Why what this rank has come to will never begin, or never end; null if it may.
  std::exception_ptr obstacle() const;
  std::exception_ptr mismatch() const;
  /// A MismatchError if a member has refused what this rank has come to, which so ends here; else null.
  std::exception_ptr take_refusal();
  /// Says to all ranks that this one comes to no P-Reduce any more.
  void withdraw(Reason reason);

  // Of a member that has come; else nothing.
  std::uint64_t ticket_of(Rank member) const;
  std::string handle_of(Rank member) const;

  // What the other ranks have sent.
  void arrived(Rank from, const Arrival& message, std::span<const char> handle);
  void refused(Rank from, std::span<const char> piece);
  void withdrawn(Rank from, const Withdrawal& message) { withdrawn_[index(from)] = message; }

 private:
  struct Come {
    Arrival arrival;
    std::string handle;
    std::optional<std::string> refusal;  // instead of these
  };

  static std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }
  void keep(Rank from, Come come);
  void skip(const std::vector<Rank>& members);
  const Come* oldest(Rank member) const;
  bool will_come(Rank member) const;
  std::exception_ptr error_of(Rank member) const;

  Engine& engine_;
  const PreduceMailbox& mailbox_;
  std::vector<std::deque<Come>> arrivals_;            // by rank: to groups that have not begun here, oldest first
  std::vector<std::uint32_t> owed_;                   // by rank: how many to come are of P-Reduces that were refused
  std::vector<std::string> reasons_;                  // by rank: the pieces so far
  std::vector<std::optional<Withdrawal>> withdrawn_;  // by rank
  std::vector<Rank> members_;
  Arrival own_{};
  std::uint64_t number_ = 0;
  bool begun_ = false;
};

}  // namespace pyc
