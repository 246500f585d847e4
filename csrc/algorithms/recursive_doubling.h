// Allreduce by recursive doubling.
//
// In step k every rank exchanges all it has with the rank whose number differs in bit k, and reduces: after log2 P
// steps everybody has everything. If P is not a power of two the extra ranks fold onto a partner first and get the
// result from it last (core/patterns.h). All ranks reduce the same two operands in every step, in either order, hence
// the result has the same bits everywhere.
//
// Reference: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH" (2005).
// Steps: floor(log2 P), 2 more if P is not a power of two. Bytes sent per rank: S log2 P.
#pragma once

#include "algorithms/cost.h"
#include "schedule/builder.h"

namespace pyc {

void allreduce_recursive_doubling(ScheduleBuilder& s, Operands io);

Course course_of_recursive_doubling(Rank size, std::size_t count);

/// Of an algorithm for a power of two whose ranks meet in `there`, in `doublings` further steps with a peer for each of
/// the lowest bits, and with the peers of `there` again in `back`; extra ranks are folded onto partners, by messages of
/// all `elements`.
Course folded(Rank size, double elements, const Chain& there, Rank doublings, double part, const Chain& back);

}  // namespace pyc
