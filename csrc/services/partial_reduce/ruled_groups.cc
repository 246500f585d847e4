#include "services/partial_reduce/ruled_groups.h"

#include <cstring>
#include <span>
#include <utility>

#include "core/error.h"

namespace pyc {

RuledGroups::RuledGroups(Engine& engine, std::uint32_t collective)
    : engine_(engine), collective_(collective), steps_(static_cast<std::size_t>(engine.size()), kNowhere) {}

void RuledGroups::request(std::int64_t step, const std::vector<Rank>& group) {
  group_ = group;
  step_ = step;
  step_of(engine_.rank()) = step;
  for (const Rank r : group_) {
    if (r != engine_.rank()) tell(r, kHere, step);
  }
  reconsider();
}

/// All members have come or left?
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
  for (const Rank r : members) step_of(r) = kNowhere;  // now: one may come to the next group before this rank has ended
  turn_ = {.sequence = static_cast<std::uint64_t>(step_), .members = std::move(members), .newest_step = step_};
  ready_ = true;
}

void RuledGroups::performed() {
  group_.clear();
  ready_ = false;
}

void RuledGroups::leave() {
  for (Rank r = 0; r < engine_.size(); ++r) tell(r, kLeave, 0);
}

void RuledGroups::tell(Rank rank, Kind kind, std::int64_t step) {
  const Note note{{collective_, kind}, step};
  engine_.transport().notify(rank, std::as_bytes(std::span(&note, 1)));
}

void RuledGroups::on_notice(Rank from, ConstBytes bytes) {
  Note said;
  if (bytes.size() != sizeof said) throw InternalError("a notice has the wrong length");
  std::memcpy(&said, bytes.data(), sizeof said);
  if (said.header.kind == kLeave) {
    left_.insert(from);
  } else {
    step_of(from) = said.step;
  }
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
