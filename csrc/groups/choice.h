// Which workers form a group: the rules of Ripples, and one of our own. Nothing here knows how groups are performed.
//
// *Random* (Ripples section 4.1): the initiator and others drawn from all workers.
//
// *Global Division* (5.1): a random partition of the workers that are in no group, so there are no conflicts. With
// *Inter-Intra* (5.2) each worker gets two groups. First the heads, one drawn per node, are divided among all nodes and
// the rest within each node; then all workers of a node form a group. Workers far behind the initiator are left out
// (5.3).
//
// *Punctual* (ours): the initiator and workers that are in no group and *due now*, that is, one observed interval after
// their last group. See "Why punctual groups" in docs/groups.md.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/nodes.h"
#include "core/splitmix.h"
#include "core/types.h"
#include "groups/connectivity.h"
#include "groups/options.h"
#include "groups/workers.h"

namespace pyc {

/// Groups, in the order in which they are performed.
class GroupList {
 public:
  std::size_t count() const { return ends_.size(); }
  std::span<const Rank> operator[](std::size_t index) const {
    const std::size_t begin = index == 0 ? 0 : ends_[index - 1];
    return std::span(members_).subspan(begin, ends_[index] - begin);
  }
  void clear() {
    members_.clear();
    ends_.clear();
  }
  void append(std::span<const Rank> group) {
    members_.insert(members_.end(), group.begin(), group.end());
    ends_.push_back(members_.size());
  }

 private:
  std::vector<Rank> members_;
  std::vector<std::size_t> ends_;
};

class Choice {
 public:
  Choice(const GroupOptions& options, const Workers& workers);

  /// The groups for a request of `initiator`, which is in at least one. Valid until the next call.
  const GroupList& groups_for(Rank initiator, Seconds now);
  /// Call this for every generated group.
  void note(std::span<const Rank> group) { connectivity_.note(group); }

 private:
  void choose_random(Rank initiator);
  void choose_division(Rank initiator);
  void choose_inter_intra();
  void choose_punctual(Rank initiator, Seconds now);

  void divide(std::span<Rank> workers);
  void bridge_chunk(std::span<Rank> workers, std::size_t begin, std::size_t end);
  void bridge_punctual(Rank initiator, Rank bridge, std::size_t taken);

  const GroupOptions& options_;
  const Workers& workers_;
  Nodes nodes_;
  SplitMix random_;
  Connectivity connectivity_;
  GroupList groups_;
  std::vector<Rank> candidates_;                 // scratch
  std::vector<Rank> heads_;                      // scratch
  std::vector<std::vector<Rank>> idle_of_node_;  // scratch
};

}  // namespace pyc
