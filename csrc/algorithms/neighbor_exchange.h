// The exchange over one edge of a graph of ranks: one rank gives its values, the other takes them.
//
// A neighborhood exchange is as many of these as a rank has neighbors. Each edge is a plan of its own, of two ranks,
// and not one plan of all neighbors: a neighbor that is late, or has left, then holds up nothing else, and the same
// plan serves every edge of every graph.
//
// Reference: the exchange of D-PSGD (Lian et al. 2017, Algorithm 1) and of SGP (Assran et al. 2019, Algorithm 1).
// Steps: 1. Bytes sent per rank: S times the number of out-neighbors.
#pragma once

#include "schedule/builder.h"

namespace pyc {

inline constexpr Rank kGiver = 0;
inline constexpr Rank kTaker = 1;

/// Rank kGiver of the plan sends `values`, rank kTaker receives them there.
void neighbor_exchange(ScheduleBuilder& s, Slice values);

}  // namespace pyc
