// How groups are generated: the mechanisms of Ripples as switches.
#pragma once

#include <cstdint>
#include <vector>

#include "core/types.h"

namespace pyc {

struct GroupOptions {
  std::vector<Rank> node_of;  ///< by worker; numbered from 0 without gaps, in the order of their lowest ranks
  Rank size = 3;              ///< members of a group; one more if a single worker remains
  std::uint64_t seed = 0;

  /// The first group that a worker is already in answers its request (Ripples section 5.1). Without the buffer, every
  /// request makes a group, and its worker first performs the groups before it (section 4.1).
  bool group_buffer = true;
  /// A request partitions all workers without a group (section 5.1). Needs the group buffer.
  bool global_division = false;
  /// A division makes two groups for each worker: between nodes, then within its node (section 5.2). Needs the
  /// division.
  bool inter_intra = false;
  /// A division leaves out workers this many requests behind its initiator (section 5.3); 0: none.
  std::int64_t slowdown_threshold = 0;

  /// Ours: groups of workers that are due at the same time (groups/choice.h). Needs the group buffer.
  bool punctual = false;
  double tolerance = 0.1;  ///< due at the same time: within this fraction of the initiator's own interval
  double patience = 1.0;   ///< if none is due, wait for the first one, up to this fraction

  /// Number of each worker's newest groups that must connect all workers (groups/connectivity.h); 0: unchecked.
  std::int32_t connectivity = 0;
};

}  // namespace pyc
