// How the members of a group that the application gives come together. Each tells the others that it is here and what
// for; a P-Reduce begins when all are here for the same. So a mistake of the caller is found before a value moves, a
// stall can name who has not come, and nobody waits for a rank that is known to come no more: it has left the
// communicator, or withdrawn.
//
// One arrival of each rank is kept. That is enough: its next one with this rank is sent after its P-Reduce has ended,
// which needs this rank to have begun.
//
// Under the engine's progress lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "engine/collective.h"
#include "engine/engine.h"
#include "memory/group_data.h"

namespace pyc {

class Handshake {
 public:
  enum Kind : std::uint32_t { kHere, kWithdrawal, kKinds };  // of its notices
  /// Why a rank comes to no P-Reduce any more.
  enum class Reason : std::uint32_t {
    kGaveUp,    // its application did, or somebody it waited for had; it stays in the one that it has come to
    kMismatch,  // it found its members to be in different ones
    kMemory,    // it cannot have the memory of the others
  };

  /// Of `engine`'s rank; notices are of `collective`.
  Handshake(Engine& engine, std::uint32_t collective);

  /// Comes, and says so to the others. `members`: ascending, this rank among them. `ticket` and `handle`: for shared
  /// memory, 0 and empty without.
  void come(const std::vector<Rank>& members, const GroupData& data, std::uint64_t ticket, const std::string& handle);
  /// What all members have said alike, in one number. Not how often: a P-Reduce ends nowhere before all members have
  /// come to it, so they cannot be at different ones of the same group.
  std::uint64_t number() const { return number_; }

  bool has_come(Rank member) const;
  bool complete() const;
  /// Forgets who has come: one may come to the next group before this rank has ended this one.
  void begin();

  /// Why what this rank has come to will never begin, or never end; null if it may.
  std::exception_ptr obstacle() const;
  std::exception_ptr mismatch() const;
  /// Tells all ranks that this one comes to no P-Reduce any more.
  void withdraw(Reason reason);

  // Of a member that has come; else nothing.
  std::uint64_t ticket_of(Rank member) const { return arrivals_[index(member)].value_or(Arrival{}).ticket; }
  std::string handle_of(Rank member) const { return arrivals_[index(member)].value_or(Arrival{}).handle; }
  static constexpr std::size_t kLongestHandle = 28;

  void on_notice(Rank from, ConstBytes notice);

 private:
  struct Arrival {
    NoticeHeader header;
    std::uint64_t group;  // a hash of its members
    std::uint64_t count;
    std::uint64_t ticket;  // the last that it has used
    DataType type;
    ReduceOp op;
    std::uint16_t size;  // members
    char handle[kLongestHandle];

    bool is_for(const Arrival& other) const {
      return group == other.group && count == other.count && type == other.type && op == other.op;
    }
    std::string what() const;
  };
  static_assert(sizeof(Arrival) <= kMaxNotice);
  struct Withdrawal {
    NoticeHeader header;
    std::uint64_t number;  // of the P-Reduce that it had come to
    Reason reason;
  };

  static std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }
  bool will_come(Rank member) const;
  std::exception_ptr error_of(Rank member) const;
  template <class Notice>
  void tell(Rank rank, const Notice& notice);

  Engine& engine_;
  const std::uint32_t collective_;
  std::vector<std::optional<Arrival>> arrivals_;      // by rank: to a group that has not begun here
  std::vector<std::optional<Withdrawal>> withdrawn_;  // by rank
  std::vector<Rank> members_;
  Arrival own_{};
  std::uint64_t number_ = 0;
  bool begun_ = false;
};

}  // namespace pyc
