// Which workers make a group: the rules of Ripples, and one of our own. Nothing here knows how groups are performed.
//
// *Random* (Ripples section 4.1): the initiator and others drawn from all workers.
//
// *Global Division* (5.1): a random partition of the workers that are in no group, hence without conflicts. With
// *Inter-Intra* (5.2) each of them gets two groups: the heads, one drawn per node, are divided among all nodes and the
// rest within each node; then all of a node together. Workers far behind the initiator are left out (5.3).
//
// *Punctual*, our own. What holds workers up is not conflicts but waiting at a group for members that still compute.
// A division gives groups to workers whatever they are doing: the first to arrive determines mates for the others, and
// with Inter-Intra even the mates of their next but one synchronisation. A slow worker's division (it is in no fast
// worker's any more) finds all fast workers idle, in the middle of their work. Without Inter-Intra that costs little:
// the slow worker waits for its mates, not they for it. But Inter-Intra makes a second group of its whole node, at
// which the node's fast workers wait until the slow one has computed once more; and while they wait, they are missing
// elsewhere. No counter mends that, since it is the slow worker that counts its fellows as eligible.
// So a punctual group is made for its initiator alone, of workers that are in no group and *due now*: a worker computes
// between two groups for an interval that the generator has seen before, hence is due one interval after its last
// group.
//   - Mates are drawn at random from those due within `tolerance` of the initiator's own interval; if all but one of
//   them
//     would be taken, that one is too.
//   - If nobody is due, the initiator waits for the first that will be, up to `patience` of its own interval: a worker
//   out
//     of step with the others falls into step. If nobody will be, it is alone in its group: it has been early by more
//     than a whole step, and waiting would cost it more than a step.
// A slow worker never holds a fast one, since it is in a fast one's group only when it is due; but it always finds
// mates, since all fast workers are due within its interval. So it stays connected, and waits at most a fast worker's
// interval. Classes of workers in step with themselves but not with each other might never meet: see
// groups/connectivity.h.
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
