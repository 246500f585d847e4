// When to impose the next barrier (ElasticBSP, Problem 1): the end of the earliest of the shortest windows with a point
// of every worker. docs/zipline.md compares the algorithms. All expect rows that check_rows accepts.
// Time is std::int64_t or double.
#pragma once

#include "zipline/barrier.h"
#include "zipline/rows.h"

namespace pyc::zipline {

template <class Time>
Barrier<Time> zipline_linear(const Rows<Time>& rows);
template <class Time>
Barrier<Time> zipline(const Rows<Time>& rows);
template <class Time>
Barrier<Time> zipline_opt(const Rows<Time>& rows);
template <class Time>
Barrier<Time> zipline_opt_bs(const Rows<Time>& rows);
template <class Time>
Barrier<Time> grid_scan(const Rows<Time>& rows);
template <class Time>
Barrier<Time> full_grid_scan(const Rows<Time>& rows);

}  // namespace pyc::zipline
