// Which workers make a group: the rules of Ripples, and one of our own. Nothing here knows how groups are performed.
//
// *Random* (Ripples section 4.1): the initiator and others drawn from all workers.
//
// *Global Division* (5.1): a random partition of the workers that are in no group, hence without conflicts. With
// *Inter-Intra* (5.2) each of them gets two groups: the heads, one drawn per node, are divided among all nodes and the
// rest within each node; then all of a node together. Workers far behind the initiator are left out (5.3).
//
// *Punctual*, our own. What costs time is not conflicts but waiting, at a group, for members that still compute. A
// division gives groups to workers whatever they are doing. Without Inter-Intra that does little harm: a slow worker's
// division finds fast mates half-way through their work, and it is the slow one that waits; but they are out of step
// afterwards. With Inter-Intra, a division leaves a second group, of the whole node, at which the slow worker's fellows
// wait until it has computed once more. So they make as many requests as it does, their counters say the same as its
// counter, and when one of them divides, the filter of section 5.3 finds no straggler among them and enrols it again,
// whatever the threshold: the whole node goes at the slow worker's pace for ever. A punctual group is made for its
// initiator alone, of workers that are in no group and *due now*. A worker computes for an interval that the generator
// has observed; hence it is due one interval after its last group.
//   - Mates are drawn from those due within `tolerance` of the initiator's own interval. If one more than needed is
//   due,
//     it is taken too.
//   - If nobody is, the initiator waits for the first to be due, up to `patience` of its own interval; so a worker that
//     is out of step falls into step. If nobody will be due by then, it is alone: others are slower than it, and one of
//     them will make a group with it.
// A slow worker is in a fast one's group only when it is about to arrive, so it does not hold it. And it always finds
// fast mates, since all are due within its own interval: it stays connected. Classes of workers of which each is in
// step with itself only might never meet: see groups/connectivity.h.
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

/// Groups, one after the other in the order in which they are to be performed.
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
  /// `options` and `workers` must outlive it.
  Choice(const GroupOptions& options, const Workers& workers);

  /// The groups that a request of `initiator` leads to. It is in at least one; valid until the next call.
  const GroupList& groups_for(Rank initiator, Seconds now);
  /// Every group that is generated, whoever chose it.
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
