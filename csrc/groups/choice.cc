#include "groups/choice.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace pyc {
namespace {

/// Number of groups that synchronize every worker once.
std::size_t groups_per_step(const GroupOptions& options) {
  return std::max<std::size_t>(1, options.node_of.size() / static_cast<std::size_t>(options.size));
}

}  // namespace

Choice::Choice(const GroupOptions& options, const Workers& workers)
    : options_(options),
      workers_(workers),
      nodes_(options.node_of),
      random_(options.seed),
      connectivity_(nodes_.size(), static_cast<std::size_t>(options.connectivity) * groups_per_step(options),
                    groups_per_step(options)),
      idle_of_node_(static_cast<std::size_t>(nodes_.count())) {}

const GroupList& Choice::groups_for(Rank initiator, Seconds now) {
  groups_.clear();
  if (options_.punctual) {
    choose_punctual(initiator, now);
  } else if (options_.global_division) {
    choose_division(initiator);
  } else {
    choose_random(initiator);
  }
  return groups_;
}

void Choice::choose_random(Rank initiator) {
  candidates_.assign(workers_.present().begin(), workers_.present().end());
  std::swap(*std::find(candidates_.begin(), candidates_.end(), initiator), candidates_.front());
  const std::size_t mates = std::min(static_cast<std::size_t>(options_.size), candidates_.size()) - 1;
  const std::span others = std::span(candidates_).subspan(1);
  random_.shuffle_front(others, mates);
  if (connectivity_.wants_bridge() && mates > 0) {
    const auto is_apart = [&](Rank r) { return connectivity_.are_apart(initiator, r); };
    const auto taken = others.first(mates);
    if (std::none_of(taken.begin(), taken.end(), is_apart)) {
      const auto found = std::find_if(others.begin(), others.end(), is_apart);
      if (found != others.end()) std::swap(*found, taken.back());
    }
  }
  groups_.append(std::span(candidates_).first(mates + 1));
}

void Choice::choose_division(Rank initiator) {
  candidates_.clear();
  const std::int64_t threshold = options_.slowdown_threshold;
  for (const Rank r : workers_.idle()) {
    const std::int64_t behind = workers_.requests(initiator) - workers_.requests(r);
    if (r == initiator || threshold == 0 || behind < threshold) candidates_.push_back(r);
  }
  if (options_.inter_intra && nodes_.count() > 1) {
    choose_inter_intra();
  } else {
    divide(candidates_);
  }
}

void Choice::choose_inter_intra() {
  for (std::vector<Rank>& idle : idle_of_node_) idle.clear();
  for (const Rank r : candidates_) idle_of_node_[static_cast<std::size_t>(nodes_.of(r))].push_back(r);
  heads_.clear();
  for (std::vector<Rank>& idle : idle_of_node_) {
    if (idle.empty()) continue;
    random_.shuffle_front(std::span(idle), 1);
    heads_.push_back(idle.front());
  }
  if (heads_.size() == 1) {  // all on one node
    divide(candidates_);
  } else {
    divide(heads_);
    for (std::vector<Rank>& idle : idle_of_node_) {
      if (idle.size() > 1) divide(std::span(idle).subspan(1));
    }
  }
  for (const std::vector<Rank>& idle : idle_of_node_) {
    if (idle.size() > 1) groups_.append(idle);
  }
}

/// A random partition into groups of `size`. The rest forms a smaller group; a rest of one worker joins the last group.
void Choice::divide(std::span<Rank> workers) {
  random_.shuffle_front(workers, workers.size());
  const auto size = static_cast<std::size_t>(options_.size);
  for (std::size_t begin = 0; begin < workers.size();) {
    std::size_t end = std::min(begin + size, workers.size());
    if (end + 1 == workers.size()) ++end;
    if (connectivity_.wants_bridge()) bridge_chunk(workers, begin, end);
    groups_.append(workers.subspan(begin, end - begin));
    begin = end;
  }
}

/// Exchanges the last member of a group within one component for a later worker of another component.
void Choice::bridge_chunk(std::span<Rank> workers, std::size_t begin, std::size_t end) {
  const auto is_apart = [&](Rank r) { return connectivity_.are_apart(workers[begin], r); };
  const auto first = workers.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto last = workers.begin() + static_cast<std::ptrdiff_t>(end);
  if (last - first < 2 || std::any_of(first, last, is_apart)) return;
  const auto found = std::find_if(last, workers.end(), is_apart);
  if (found != workers.end()) std::swap(*found, *(last - 1));
}

void Choice::choose_punctual(Rank initiator, Seconds now) {
  const Seconds interval = workers_.interval(initiator);
  const bool wants_bridge = connectivity_.wants_bridge();
  Seconds soonest = std::numeric_limits<Seconds>::infinity();
  Seconds soonest_apart = soonest;
  Rank first = kNoRank;
  Rank first_apart = kNoRank;
  candidates_.assign(1, initiator);
  for (const Rank r : workers_.idle()) {
    if (r == initiator) continue;
    const Seconds away = workers_.away(r, now);
    if (away <= options_.tolerance * interval) candidates_.push_back(r);
    if (away > options_.patience * interval) continue;
    if (away < soonest) {
      soonest = away;
      first = r;
    }
    if (wants_bridge && away < soonest_apart && connectivity_.are_apart(initiator, r)) {
      soonest_apart = away;
      first_apart = r;
    }
  }
  if (candidates_.size() == 1 && first != kNoRank) candidates_.push_back(first);
  const auto size = static_cast<std::size_t>(options_.size);
  const std::size_t taken = candidates_.size() == size + 1 ? size + 1 : std::min(size, candidates_.size());
  random_.shuffle_front(std::span(candidates_).subspan(1), taken - 1);
  if (first_apart != kNoRank) bridge_punctual(initiator, first_apart, taken);
  groups_.append(std::span(candidates_).first(taken));
}

/// Puts `bridge`, of another component, among the first `taken` candidates, unless such a worker is there already.
void Choice::bridge_punctual(Rank initiator, Rank bridge, std::size_t taken) {
  for (std::size_t i = 1; i < taken; ++i) {
    if (connectivity_.are_apart(initiator, candidates_[i])) return;
  }
  const auto found = std::find(candidates_.begin(), candidates_.end(), bridge);
  Rank& last = candidates_[taken - 1];
  if (found != candidates_.end()) {
    std::swap(*found, last);
  } else {
    last = bridge;
  }
}

}  // namespace pyc
