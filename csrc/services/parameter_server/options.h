// What a parameter server is: what it keeps, who serves it, how gradients change it, and when (its policy).
//
// Reference: Zhao et al., "ElasticBSP: elastic bulk synchronous parallel", Machine Learning, 2021. Sections, figures
// and algorithms in this folder are its, unless another paper is named.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/types.h"

namespace pyc::server {

enum class Sync : std::uint32_t {
  kBsp,
  kAsp,
  kSsp,
  kDssp,
  kElasticBsp,
  kEamsgd,
  kRingmaster,
  kRennala,
  kRingleader,
  kRescaled,
  kMindFlayer,
};

/// Whether each gradient that is used is an update by itself.
constexpr bool updates_by_each(Sync sync) {
  return sync == Sync::kAsp || sync == Sync::kSsp || sync == Sync::kDssp || sync == Sync::kElasticBsp ||
         sync == Sync::kRingmaster || sync == Sync::kRescaled;
}

/// Which of csrc/zipline solves for ElasticBSP's barrier.
enum class Solver : std::uint32_t { kLinear, kZipline, kZiplineOpt, kZiplineOptBs, kGridScan, kFullGridScan };

/// Each policy reads those that it has.
struct SyncOptions {
  Sync kind = Sync::kBsp;
  std::uint64_t low = 0, high = 0;  ///< staleness: SSP(low), DSSP(low, high)
  std::uint64_t lookahead = 15;     ///< ElasticBSP's R
  Solver solver = Solver::kLinear;
  bool weigh_length = false;          ///< ElasticBSP, ours: least waiting per time, not least waiting
  double patience = 10;               ///< times the longest interval, until a worker that others wait for is missing
  std::uint64_t limit = 1;            ///< Ringmaster's R, Rennala's S
  std::vector<std::uint64_t> trials;  ///< MindFlayer, by worker
  std::vector<Seconds> allotted;      ///< MindFlayer, by worker: time of a trial
};

enum class Rule : std::uint32_t {
  kSgd,
  kAdam,
  kElastic,
  kFunction,  ///< the application's
};

/// How a gradient changes the weights.
struct UpdateOptions {
  Rule rule = Rule::kSgd;
  double rate = 0;
  double momentum = 0;                                ///< SGD
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  ///< Adam
  double alpha = 0;                                   ///< elastic averaging: what is pushed are weights
};

struct Options {
  std::string name;
  std::size_t count = 0;
  DataType type = DataType::kFloat32;  ///< a float type
  std::vector<Rank> workers;           ///< ascending
  std::vector<Rank> servers;           ///< ascending; each has a shard
  bool direct = false;                 ///< whoever pushes updates the weights itself, in the memory of the one node
  SyncOptions sync;
  UpdateOptions update;
};

}  // namespace pyc::server
