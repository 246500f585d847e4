// The exchange over one edge of a graph of ranks: one rank sends its values, the other receives them.
//
// A neighborhood exchange is one such plan for each neighbor, not one plan of all neighbors. A neighbor that is late or
// has left then delays nothing else, and the same plan serves every edge of every graph.
//
// Reference: the exchange of D-PSGD (Lian et al. 2017, Algorithm 1) and of SGP (Assran et al. 2019, Algorithm 1).
// Steps: 1. Bytes sent per rank: S times the number of out-neighbors.
#pragma once

#include "schedule/builder.h"

namespace pyc {

inline constexpr Rank kGiver = 0;
inline constexpr Rank kTaker = 1;

void neighbor_exchange(ScheduleBuilder& s, Slice values);

}  // namespace pyc
