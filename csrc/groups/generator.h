// The group generator of Ripples (section 4.1): who performs which P-Reduce with whom, and when it may start.
//
// A worker that wants to synchronise sends a *request*. The generator makes groups (groups/choice.h), gives each a
// sequence number, and *grants* a group, which tells its members to perform it; each member *acknowledges* when it has.
// A worker performs one group at a time: while it does, it is *locked*. Overlapping groups are performed in the order
// in which they were generated, disjoint ones at once.
//
// The order is kept without a search. Each worker has a queue, its Group Buffer: the groups with it that it has not
// acknowledged, in the order of their generation. A group starts when it is the first of all its members' queues. Any
// earlier group that it overlaps is in front of it in some queue; so nothing is overtaken. The earliest group that is
// not done is first everywhere; so something always runs, and as its members come to it in the same order, it ends.
//
// With the group buffer, the n-th request of a worker is answered by the n-th group that it is in. Without, by the
// group that the request makes: the worker performs what stands before it in its queue on the way.
//
// It is a state machine without I/O, threads or clock. The caller may say what time it is, always or never: without,
// time is counted in requests.
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

/// Numbers the groups in the order of their generation, from 0.
using Sequence = std::uint64_t;

/// Tells every member: perform this P-Reduce now.
struct Grant {
  Sequence sequence = 0;
  std::span<const Rank> members;  ///< ascending; valid until the last of them has acknowledged
  Rank initiator = kNoRank;       ///< whose request made it
  std::int32_t conflicts = 0;     ///< earlier groups that it had to wait for when it was generated
  bool answers_everyone = true;

  /// Whether it answers a request of this member: its last one or, if the worker has not asked yet, its next.
  bool answers(Rank member) const { return answers_everyone || member == initiator; }
};

class GroupGenerator {
 public:
  /// std::invalid_argument if the options contradict each other.
  explicit GroupGenerator(GroupOptions options);

  GroupGenerator(const GroupGenerator&) = delete;
  GroupGenerator& operator=(const GroupGenerator&) = delete;

  // Each appends the groups that start by it to `started`. Misuse is a std::invalid_argument and changes nothing.

  /// A worker wants to synchronise. It has been answered when it has acknowledged the group that answers it.
  void request(Rank worker, std::vector<Grant>& started, std::optional<Seconds> now = {});
  /// The same, but the group is given; not if the worker is in a group already that is to answer it.
  void propose(Rank worker, std::span<const Rank> group, std::vector<Grant>& started, std::optional<Seconds> now = {});
  /// A member has performed the group.
  void acknowledge(Rank worker, Sequence sequence, std::vector<Grant>& started, std::optional<Seconds> now = {});
  /// A worker ends: it will be in no new group. Those that it is in already stay, and it must acknowledge them.
  void leave(Rank worker);

  /// All have left, and no group is running or pending.
  bool finished() const { return workers_.present().empty() && alive_ == 0; }

  Rank size() const { return static_cast<Rank>(queues_.size()); }
  const GroupOptions& options() const { return options_; }
  /// Groups generated so far.
  Sequence generated() const { return next_; }
  /// Groups that are running or pending.
  std::size_t alive() const { return alive_; }
  /// The lock vector: whether the worker has been told to perform a group that it has not acknowledged.
  bool is_locked(Rank worker) const;
  /// Whether a request of the worker is not answered yet.
  bool is_asking(Rank worker) const { return answer_[checked(worker)] != kNoSequence; }
  /// The worker's Group Buffer.
  std::vector<Sequence> groups_of(Rank worker) const;

  /// The groups that are running or pending, a line each, with what they wait for: for the report of a stall.
  /// Those of worker `first` come first.
  std::string describe(Rank first = kNoRank) const;

 private:
  using Slot = std::uint32_t;  // in groups_
  static constexpr Sequence kNoSequence = ~Sequence{0};

  struct Group {
    Sequence sequence = kNoSequence;  // kNoSequence: the slot is free
    std::vector<Rank> members;
    Rank initiator = kNoRank;
    std::int32_t conflicts = 0;
    Rank blocked = 0;         // members who have an earlier group to do first
    Rank unacknowledged = 0;  // members who have not acknowledged
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
  std::vector<std::vector<Slot>> queues_;  // by worker; short, so that a vector serves
  std::vector<Sequence> answer_;           // by worker: the group that answers its request; kNoSequence: no request
  std::vector<Group> groups_;
  std::vector<Slot> free_;
  Sequence next_ = 0;
  std::size_t alive_ = 0;
  std::uint64_t requests_ = 0;
};

}  // namespace pyc
