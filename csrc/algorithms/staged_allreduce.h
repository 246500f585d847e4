// An in-place allreduce of data that messages cannot carry, such as device memory. In pieces, it copies the data to a
// staging buffer, reduces it there by an algorithm of the registry, and copies it back. Copies of some pieces overlap
// with the reduction of others.
#pragma once

#include <cstddef>
#include <string>

#include "schedule/builder.h"

namespace pyc {

struct StagedAllreduce {
  Slice staging;       ///< as long as the data
  std::size_t pieces;  ///< number of copies to `staging`, and back
};

/// Copies pieces of at least `piece` elements, or one shorter piece. The result has the same bits as without copies.
/// `data` must be a whole buffer.
StagedAllreduce build_staged_allreduce(ScheduleBuilder& s, const std::string& algorithm, const Slice& data,
                                       std::size_t piece);

/// The most pieces in a plan of `count` elements, for any algorithm and rank.
std::size_t most_pieces(std::size_t count, std::size_t piece);

}  // namespace pyc
