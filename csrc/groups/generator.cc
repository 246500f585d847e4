#include "groups/generator.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace pyc {
namespace {

[[noreturn]] void refuse(const std::string& text) { throw std::invalid_argument("group generator: " + text); }

std::string name_of_worker(Rank worker) { return "worker " + std::to_string(worker); }

void check_nodes(const std::vector<Rank>& node_of) {
  if (node_of.empty()) refuse("expected at least one worker");
  Rank next = 0;
  for (const Rank node : node_of) {
    if (node < 0 || node > next) refuse("expected nodes numbered in the order of their lowest ranks");
    if (node == next) ++next;
  }
}

GroupOptions valid(GroupOptions options) {
  check_nodes(options.node_of);
  if (options.size < 2) refuse("expected a group size >= 2, got " + std::to_string(options.size));
  if (options.slowdown_threshold < 0) refuse("expected a slowdown threshold >= 0");
  if (options.connectivity < 0) refuse("expected a connectivity >= 0");
  if (!(std::isfinite(options.tolerance) && options.tolerance >= 0)) refuse("expected a finite tolerance >= 0");
  if (!(std::isfinite(options.patience) && options.patience >= 0)) refuse("expected a finite patience >= 0");
  if (options.global_division && !options.group_buffer) refuse("a global division needs the group buffer");
  if (options.punctual && !options.group_buffer) refuse("punctual groups need the group buffer");
  if (options.punctual && options.global_division) refuse("groups are punctual or of a global division, not both");
  if (options.inter_intra && !options.global_division) refuse("inter-intra needs the global division");
  return options;
}

template <class Numbers>
std::string list(const Numbers& numbers) {
  std::string text;
  for (const auto number : numbers) {
    if (!text.empty()) text += ", ";
    text += std::to_string(number);
  }
  return text;
}

}  // namespace

GroupGenerator::GroupGenerator(GroupOptions options)
    : options_(valid(std::move(options))),
      workers_(static_cast<Rank>(options_.node_of.size())),
      choice_(options_, workers_),
      queues_(options_.node_of.size()),
      answer_(options_.node_of.size(), kNoSequence) {}

// ------------------------------------------------------------------------------------------------ events

void GroupGenerator::request(Rank worker, std::vector<Grant>& started, std::optional<Seconds> now) {
  check_may_ask(worker);
  note_request(worker, time(now));
  const std::size_t w = checked(worker);
  if (options_.group_buffer && !queues_[w].empty()) {
    answer_[w] = groups_[queues_[w].front()].sequence;
    return;
  }
  const GroupList& groups = choice_.groups_for(worker, time(now));
  for (std::size_t i = 0; i < groups.count(); ++i) {
    const Sequence sequence = generate(worker, groups[i], started);
    const bool is_mine = answer_[w] == kNoSequence && std::ranges::find(groups[i], worker) != groups[i].end();
    if (is_mine) answer_[w] = sequence;
  }
}

void GroupGenerator::propose(Rank worker, std::span<const Rank> group, std::vector<Grant>& started,
                             std::optional<Seconds> now) {
  check_may_ask(worker);
  const std::size_t w = checked(worker);
  if (options_.group_buffer && !queues_[w].empty()) {
    refuse(name_of_worker(worker) + " is answered by group " + std::to_string(groups_[queues_[w].front()].sequence) +
           ", which it is in already");
  }
  std::vector<Rank> members(group.begin(), group.end());
  std::ranges::sort(members);
  for (const Rank r : members) {
    if (workers_.has_left(static_cast<Rank>(checked(r))))
      refuse(name_of_worker(r) + " has left: it is in no new group");
  }
  if (std::ranges::adjacent_find(members) != members.end()) refuse("expected different members, got " + list(members));
  if (!std::ranges::binary_search(members, worker)) {
    refuse("expected a group with the initiator " + std::to_string(worker) + ", got " + list(members));
  }
  note_request(worker, time(now));
  answer_[w] = generate(worker, members, started);
}

void GroupGenerator::acknowledge(Rank worker, Sequence sequence, std::vector<Grant>& started,
                                 std::optional<Seconds> now) {
  const std::size_t w = checked(worker);
  const bool runs = is_locked(worker) && groups_[queues_[w].front()].sequence == sequence;
  if (!runs)
    refuse(name_of_worker(worker) + " acknowledges group " + std::to_string(sequence) + ", which it is not in now");
  if (answer_[w] == kNoSequence && !workers_.has_left(worker)) {
    refuse(name_of_worker(worker) + " acknowledges group " + std::to_string(sequence) + " without a request");
  }
  if (answer_[w] == sequence) answer_[w] = kNoSequence;
  const Slot slot = queues_[w].front();
  queues_[w].erase(queues_[w].begin());
  if (--groups_[slot].unacknowledged == 0) {
    groups_[slot].sequence = kNoSequence;
    free_.push_back(slot);
    --alive_;
  }
  if (queues_[w].empty()) {
    workers_.is_free(worker);
  } else {
    Group& next = groups_[queues_[w].front()];
    if (--next.blocked == 0) start(next, started);
  }
  workers_.is_released(worker, time(now));
}

void GroupGenerator::leave(Rank worker) {
  check_may_ask(worker);
  workers_.leaves(worker);
}

// ------------------------------------------------------------------------------------------------ groups

/// Appends the group to the queues of its members. It starts if all these queues were empty.
Sequence GroupGenerator::generate(Rank initiator, std::span<const Rank> members, std::vector<Grant>& started) {
  const Slot slot = free_slot();
  Group& group = groups_[slot];
  group.sequence = next_++;
  group.members.assign(members.begin(), members.end());
  std::ranges::sort(group.members);
  group.initiator = initiator;
  group.conflicts = count_conflicts(group);
  group.blocked = 0;
  group.unacknowledged = static_cast<Rank>(members.size());
  for (const Rank r : group.members) {
    std::vector<Slot>& queue = queues_[static_cast<std::size_t>(r)];
    if (queue.empty()) {
      workers_.joins_group(r);
    } else {
      ++group.blocked;
    }
    queue.push_back(slot);
  }
  ++alive_;
  choice_.note(group.members);
  if (group.blocked == 0) start(group, started);
  return group.sequence;
}

GroupGenerator::Slot GroupGenerator::free_slot() {
  if (free_.empty()) {
    groups_.emplace_back();
    return static_cast<Slot>(groups_.size() - 1);
  }
  const Slot slot = free_.back();
  free_.pop_back();
  return slot;
}

std::int32_t GroupGenerator::count_conflicts(const Group& group) {
  std::int32_t conflicts = 0;
  for (const Rank r : group.members) {
    for (const Slot slot : queues_[static_cast<std::size_t>(r)]) {
      if (std::exchange(groups_[slot].counted_by, group.sequence) != group.sequence) ++conflicts;
    }
  }
  return conflicts;
}

void GroupGenerator::start(const Group& group, std::vector<Grant>& started) const {
  started.push_back({group.sequence, group.members, group.initiator, group.conflicts, options_.group_buffer});
}

// ------------------------------------------------------------------------------------------------ state

std::size_t GroupGenerator::checked(Rank worker) const {
  if (worker < 0 || worker >= static_cast<Rank>(queues_.size())) {
    refuse("expected a worker from 0 to " + std::to_string(queues_.size() - 1) + ", got " + std::to_string(worker));
  }
  return static_cast<std::size_t>(worker);
}

void GroupGenerator::check_may_ask(Rank worker) const {
  const std::size_t w = checked(worker);
  if (workers_.has_left(worker)) refuse(name_of_worker(worker) + " has left");
  if (answer_[w] != kNoSequence) {
    refuse(name_of_worker(worker) + " has not acknowledged group " + std::to_string(answer_[w]) +
           ", which answers its last request");
  }
}

void GroupGenerator::note_request(Rank worker, Seconds now) {
  ++requests_;
  workers_.asks(worker, now);
}

bool GroupGenerator::is_locked(Rank worker) const {
  const std::vector<Slot>& queue = queues_[checked(worker)];
  return !queue.empty() && groups_[queue.front()].blocked == 0;
}

std::vector<Sequence> GroupGenerator::groups_of(Rank worker) const {
  std::vector<Sequence> all;
  for (const Slot slot : queues_[checked(worker)]) all.push_back(groups_[slot].sequence);
  return all;
}

std::string GroupGenerator::describe(Rank first) const {
  std::vector<const Group*> alive;
  for (const Group& group : groups_) {
    if (group.sequence != kNoSequence) alive.push_back(&group);
  }
  std::ranges::sort(alive, {}, &Group::sequence);
  std::ranges::stable_partition(
      alive, [first](const Group* group) { return std::ranges::find(group->members, first) != group->members.end(); });
  std::string text;
  for (const Group* group : alive) {
    if (!text.empty()) text += '\n';
    text += describe(*group);
  }
  return text;
}

/// "group 3 of workers 0, 4, 5 runs: not asked for by 4; not acknowledged by 0, 5", or
/// "group 4 of workers 4, 5, 7 waits for group 3".
std::string GroupGenerator::describe(const Group& group) const {
  std::vector<Rank> not_asked;
  std::vector<Rank> not_acknowledged;
  std::vector<Sequence> before;
  for (const Rank r : group.members) {
    const auto& queue = queues_[static_cast<std::size_t>(r)];
    const auto place = std::ranges::find(queue, group.sequence, [&](Slot slot) { return groups_[slot].sequence; });
    if (place == queue.end()) continue;  // already acknowledged
    for (auto earlier = queue.begin(); earlier != place; ++earlier) before.push_back(groups_[*earlier].sequence);
    if (place == queue.begin()) (is_asking(r) || workers_.has_left(r) ? not_acknowledged : not_asked).push_back(r);
  }
  std::string text = "group " + std::to_string(group.sequence) + " of workers " + list(group.members);
  if (group.blocked > 0) {
    std::ranges::sort(before);
    before.erase(std::ranges::unique(before).begin(), before.end());
    text += before.size() > 1 ? " waits for groups " : " waits for group ";
    return text + list(before);
  }
  text += " runs";
  if (!not_asked.empty()) text += ": not asked for by " + list(not_asked);
  if (!not_acknowledged.empty()) {
    text += not_asked.empty() ? ": " : "; ";
    text += "not acknowledged by " + list(not_acknowledged);
  }
  return text;
}

}  // namespace pyc
