// An allreduce in place on data that messages cannot carry, such as that of a device: copied to a buffer that they can,
// reduced there by an algorithm of the registry, and copied back, in pieces. What one piece needs is done while others
// are copied.
#pragma once

#include <cstddef>
#include <string>

#include "schedule/builder.h"

namespace pyc {

struct StagedAllreduce {
  Slice staging;       ///< as long as the data
  std::size_t pieces;  ///< in so many copies the data comes there, and goes back
};

/// Copies in pieces of at least `piece` elements if there are several. The result has the bits of the algorithm without
/// copies; `data` is a whole buffer.
StagedAllreduce build_staged_allreduce(ScheduleBuilder& s, const std::string& algorithm, const Slice& data,
                                       std::size_t piece);

/// Of plans of `count` elements, by any algorithm and on any rank: pieces at most.
std::size_t most_pieces(std::size_t count, std::size_t piece);

}  // namespace pyc
