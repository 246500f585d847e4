// The plan of a partial allreduce between nodes (eager-SGD, Li et al. 2020, sections 4 and 5): activation by any node,
// a hold, and the allreduce in place on buffer `data`.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "core/nodes.h"
#include "schedule/builder.h"

namespace pyc {

/// One node's.
struct PartialAllreducePlan {
  Schedule schedule;
  Slice data;
  OpId start;                    ///< trigger: this node starts the round
  OpId active;                   ///< signal: the round has reached this node
  OpId release;                  ///< trigger: this node's part is complete
  OpId result;                   ///< signal: `data` holds the result
  Rank asks;                     ///< node that must be asked to start too; kNoRank: none
  Rank root;                     ///< node whose start reaches all without asking; kNoRank: any node's does
  std::optional<Slice> staging;  ///< of data on devices: what messages carry
  std::size_t pieces = 0;        ///< ... and in how many copies it comes there, and goes back
};

PartialAllreducePlan plan_partial_allreduce(const std::string& activation, const std::string& algorithm, Rank node,
                                            Rank nodes, std::size_t count);

/// The same of data on devices, with the bits of that plan (algorithms/staged_allreduce.h).
PartialAllreducePlan plan_staged_allreduce(const std::string& activation, const std::string& algorithm, Rank node,
                                           Rank nodes, std::size_t count, std::size_t piece);

}  // namespace pyc
