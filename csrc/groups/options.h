// How groups are generated: the mechanisms of Ripples as switches, so that each can be had without the others.
#pragma once

#include <cstdint>
#include <vector>

#include "core/types.h"

namespace pyc {

struct GroupOptions {
  std::vector<Rank> node_of;  ///< of each worker; numbered from 0 without gaps, in the order of their lowest ranks
  Rank size = 3;              ///< members of a group; a remainder of one makes it one more
  std::uint64_t seed = 0;

  /// A request takes the first group that its worker is in already (Ripples section 5.1). Without: every request makes
  /// a group, and its worker performs those before it on the way (section 4.1).
  bool group_buffer = true;
  /// A new group is one of a partition of all workers without a group (section 5.1). Needs the group buffer.
  bool global_division = false;
  /// A division makes two groups for each worker: between nodes, then within its node (section 5.2). Needs the
  /// division.
  bool inter_intra = false;
  /// Workers this many requests behind the initiator are left out of its division (section 5.3); 0: nobody is.
  std::int64_t slowdown_threshold = 0;

  /// Our own rule: groups of workers that are due at the same time (groups/choice.h). Needs the group buffer.
  bool punctual = false;
  double tolerance = 0.1;  ///< due at the same time: within this fraction of the initiator's own interval
  double patience = 1.0;   ///< if nobody is, it waits for the first to be due, up to this fraction

  /// So many of each worker's newest groups must connect all workers (groups/connectivity.h); 0: never looked at.
  std::int32_t connectivity = 0;
};

}  // namespace pyc
