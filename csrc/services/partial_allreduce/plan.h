// The plan of a partial allreduce between nodes (eager-SGD, Li et al. 2020, sections 4 and 5): activation by any node,
// a gate for the node's part, and the allreduce in place on buffer `data`.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "core/nodes.h"
#include "schedule/builder.h"

namespace pyc {

struct PartialAllreducePlan {
  Schedule schedule;
  Slice data;
  OpId start;                    ///< trigger to start the round from this node
  OpId active;                   ///< signal that the round has reached this node
  OpId release;                  ///< trigger, once this node's part is complete
  OpId result;                   ///< signal that `data` holds the result
  Rank asks;                     ///< node that must also be asked to start; kNoRank: none
  Rank root;                     ///< node whose start reaches all nodes; kNoRank: any node's start does
  std::optional<Slice> staging;  ///< for data on devices: the memory that messages use
  std::size_t pieces = 0;        ///< number of copies to it, and back
};

PartialAllreducePlan plan_partial_allreduce(const std::string& activation, const std::string& algorithm, Rank node,
                                            Rank nodes, std::size_t count);

/// The same for data on devices, with the same bits as that plan (algorithms/staged_allreduce.h).
PartialAllreducePlan plan_staged_allreduce(const std::string& activation, const std::string& algorithm, Rank node,
                                           Rank nodes, std::size_t count, std::size_t piece);

}  // namespace pyc
