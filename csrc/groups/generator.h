// The group generator of Ripples (section 4.1): which workers perform which P-Reduce, and when it may start.
//
// A worker sends a *request*. The generator forms groups (groups/choice.h), numbers them, and *grants* a group to its
// members, which perform it and *acknowledge* it. A worker performs one group at a time, and is *locked* during it.
// Overlapping groups are performed in the order of their generation, disjoint groups at the same time.
//
// The order needs no search. Each worker has a queue, its Group Buffer: the groups with it that it has not
// acknowledged, in the order of generation. A group starts when it is first in the queues of all its members. Any
// earlier group that it overlaps is before it in some queue, so no group overtakes another. The earliest group that is
// not done is first in all its queues, so some group always runs, and ends, because its members reach it in the same
// order.
//
// A state machine without I/O, threads or a clock. The caller passes the time always or never; without it, time is
// counted in requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/types.h"
#include "groups/choice.h"
#include "groups/options.h"
#include "groups/workers.h"

namespace pyc {

/// Numbers groups in the order of their generation, from 0.
using Sequence = std::uint64_t;

/// Tells every member to perform this P-Reduce now.
struct Grant {
  Sequence sequence = 0;
  std::span<const Rank> members;  ///< ascending; valid until the last member has acknowledged
  Rank initiator = kNoRank;       ///< its request made the group
  std::int32_t conflicts = 0;     ///< number of earlier groups that it waited for when it was generated
  bool answers_everyone = true;

  /// Whether it answers a request of this member: the last one or, if the worker has not asked yet, the next one.
  bool answers(Rank member) const { return answers_everyone || member == initiator; }
};

class GroupGenerator {
 public:
  /// Throws std::invalid_argument if the options contradict each other.
  explicit GroupGenerator(GroupOptions options);

  GroupGenerator(const GroupGenerator&) = delete;
  GroupGenerator& operator=(const GroupGenerator&) = delete;

  // Each call appends the groups that it starts to `started`. Misuse throws std::invalid_argument and changes nothing.

  /// A worker wants to synchronize. The request is answered when the worker has acknowledged the group that answers it.
  void request(Rank worker, std::vector<Grant>& started, std::optional<Seconds> now = {});
  /// A request for a given group. Not allowed if the worker is already in a group that will answer it.
  void propose(Rank worker, std::span<const Rank> group, std::vector<Grant>& started, std::optional<Seconds> now = {});
  void acknowledge(Rank worker, Sequence sequence, std::vector<Grant>& started, std::optional<Seconds> now = {});
  /// A worker leaves. It gets no new group, but must still acknowledge the groups that it is in.
  void leave(Rank worker);

  bool finished() const { return workers_.present().empty() && alive_ == 0; }

  Rank size() const { return static_cast<Rank>(queues_.size()); }
  const GroupOptions& options() const { return options_; }
  Sequence generated() const { return next_; }
  std::size_t alive() const { return alive_; }
  /// The lock vector: whether the worker has a granted group that it has not acknowledged.
  bool is_locked(Rank worker) const;
  bool is_asking(Rank worker) const { return answer_[checked(worker)] != kNoSequence; }
  /// The worker's Group Buffer.
  std::vector<Sequence> groups_of(Rank worker) const;

  /// The running and pending groups and the workers or groups they wait for, one per line, for the report of a stall.
  /// Groups of worker `first` come first.
  std::string describe(Rank first = kNoRank) const;

 private:
  using Slot = std::uint32_t;  // in groups_
  static constexpr Sequence kNoSequence = ~Sequence{0};

  struct Group {
    Sequence sequence = kNoSequence;  // kNoSequence: the slot is free
    std::vector<Rank> members;
    Rank initiator = kNoRank;
    std::int32_t conflicts = 0;
    Rank blocked = 0;         // members with an earlier group to perform
    Rank unacknowledged = 0;  // members that have not acknowledged
    Sequence counted_by = kNoSequence;
  };

  std::size_t checked(Rank worker) const;
  void check_may_ask(Rank worker) const;
  Seconds time(std::optional<Seconds> now) const { return now ? *now : static_cast<Seconds>(requests_); }
  void note_request(Rank worker, Seconds now);

  Sequence generate(Rank initiator, std::span<const Rank> members, std::vector<Grant>& started);
  Slot free_slot();
  std::int32_t count_conflicts(const Group& group);
  void start(const Group& group, std::vector<Grant>& started) const;
  std::string describe(const Group& group) const;

  GroupOptions options_;
  Workers workers_;
  Choice choice_;
  std::vector<std::vector<Slot>> queues_;  // by worker; short, so a vector is enough
  std::vector<Sequence> answer_;           // by worker: the group that answers its request, or kNoSequence
  std::vector<Group> groups_;
  std::vector<Slot> free_;
  Sequence next_ = 0;
  std::size_t alive_ = 0;
  std::uint64_t requests_ = 0;
};

}  // namespace pyc
