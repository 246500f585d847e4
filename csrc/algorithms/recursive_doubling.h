// Allreduce by recursive doubling.
//
// In step k every rank exchanges all its data with the rank whose number differs in bit k, and reduces. After log2 P
// steps every rank has the result. If P is not a power of two, the extra ranks first fold onto a partner, and get the
// result from it last (core/patterns.h). Both ranks of an exchange reduce the same two operands, in either order, so
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

/// The course of an algorithm for a power of two. Ranks exchange with the peers of `there`, in `doublings` further
/// steps with a peer for each of the lowest bits, and with the peers of `there` again in `back`. Extra ranks fold onto
/// partners, with messages of all `elements`.
Course folded(Rank size, double elements, const Chain& there, Rank doublings, double part, const Chain& back);

}  // namespace pyc
