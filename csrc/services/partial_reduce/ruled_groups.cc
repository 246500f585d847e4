#include "services/partial_reduce/ruled_groups.h"

#include <span>
#include <utility>

#include "core/error.h"

namespace pyc {

RuledGroups::RuledGroups(Engine& engine, std::uint32_t collective)
    : engine_(engine), mailbox_(engine, collective), steps_(static_cast<std::size_t>(engine.size()), kNowhere) {}

void RuledGroups::request(std::int64_t step, const std::vector<Rank>& group) {
  group_ = group;
  step_ = step;
  step_of(engine_.rank()) = step;
  for (const Rank r : group_) {
    if (r != engine_.rank()) mailbox_.send(r, Arrival{step});
  }
  reconsider();
}

/// Starts the group if each member has announced itself or left.
void RuledGroups::reconsider() {
  if (group_.empty() || ready_) return;
  std::vector<Rank> members;
  for (const Rank r : group_) {
    if (step_of(r) == step_) {
      members.push_back(r);
    } else if (!left_.contains(r)) {
      return;
    }
  }
  for (const Rank r : members) step_of(r) = kNowhere;  // now: the next announcement may arrive before `performed`
  turn_ = {.sequence = static_cast<std::uint64_t>(step_), .members = std::move(members), .newest_step = step_};
  ready_ = true;
}

void RuledGroups::performed() {
  group_.clear();
  ready_ = false;
}

void RuledGroups::leave() { mailbox_.broadcast(Leave{}); }

void RuledGroups::deliver(Rank from, ConstBytes message) {
  const auto receive = Handlers{
      [this](Rank rank, const Arrival& arrival) { step_of(rank) = arrival.step; },
      [this](Rank rank, const Leave&) { left_.insert(rank); },
      [this](Rank rank, const DeviceFailed&, std::span<const char> piece) { failures_.take(rank, piece); },
  };
  Messages::deliver(from, message, receive);
  reconsider();
}

std::optional<std::string> RuledGroups::explanation() const {
  std::vector<Rank> missing;
  std::string elsewhere;
  for (const Rank r : group_) {
    const std::int64_t other = steps_[static_cast<std::size_t>(r)];
    if (ready_ || other == step_ || left_.contains(r)) continue;
    missing.push_back(r);
    if (other != kNowhere) elsewhere += "; rank " + std::to_string(r) + " is in step " + std::to_string(other);
  }
  const std::string group = "group of " + list_ranks(group_) + " in step " + std::to_string(step_) + ": ";
  if (missing.empty()) return group + "every member has come: it is slow";
  return group + "have not come: " + list_ranks(missing) + elsewhere;
}

}  // namespace pyc
