// Options of a parameter server: its weights, its servers and workers, its policy, and its update rule.
//
// Reference: Zhao et al., "ElasticBSP: elastic bulk synchronous parallel", Machine Learning, 2021. Sections, figures,
// equations and algorithms in this folder refer to it unless another paper is named.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/types.h"
#include "services/parameter_server/table.h"

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

/// Whether each used gradient is an update by itself.
constexpr bool updates_by_each(Sync sync) {
  return sync == Sync::kAsp || sync == Sync::kSsp || sync == Sync::kDssp || sync == Sync::kElasticBsp ||
         sync == Sync::kRingmaster || sync == Sync::kRescaled;
}

/// The algorithm of csrc/zipline that chooses ElasticBSP's barrier.
enum class Solver : std::uint32_t { kLinear, kZipline, kZiplineOpt, kZiplineOptBs, kGridScan, kFullGridScan };

struct SyncOptions {
  Sync kind = Sync::kBsp;
  std::uint64_t low = 0, high = 0;  ///< bounds of staleness: SSP(low), DSSP(low, high)
  std::uint64_t lookahead = 15;     ///< ElasticBSP's R
  Solver solver = Solver::kLinear;
  bool predicts_each_push = true;     ///< ElasticBSP, ours: not only once per superstep
  bool weigh_length = false;          ///< ElasticBSP, ours: least waiting per time instead of least waiting
  double patience = 10;               ///< in longest intervals: after that time, an awaited worker is missing
  std::uint64_t limit = 1;            ///< Ringmaster's R, Rennala's S
  std::vector<std::uint64_t> trials;  ///< MindFlayer, by worker
  std::vector<Seconds> allotted;      ///< MindFlayer, by worker: time of a trial
};

enum class Rule : std::uint32_t {
  kSgd,
  kAdam,
  kElastic,
  kFunction,  ///< a function of the application
};

struct UpdateOptions {
  Rule rule = Rule::kSgd;
  double rate = 0;
  double momentum = 0;                                ///< SGD
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  ///< Adam
  double alpha = 0;                                   ///< elastic averaging, where workers push weights

  /// Arrays as long as the weights: momentum (SGD), first and second moment (Adam).
  std::size_t states() const { return rule == Rule::kAdam ? 2 : rule == Rule::kSgd && momentum != 0 ? 1 : 0; }
};

/// Where a server continues that takes over the weights of a former one, some of whose ranks have died.
struct Resumed {
  /// The weights from element `first` to `end` include these pushes, by worker.
  struct Part {
    std::size_t first, end;
    std::vector<Clock> included;
  };
  Version version = 0;        ///< of the weights
  Version given = 0;          ///< ... that this rank received last
  std::vector<Clock> clocks;  ///< by worker: pushes that all parts include
  std::vector<Part> parts;
};

struct Options {
  std::string name;
  std::size_t count = 0;
  DataType type = DataType::kFloat32;  ///< a float type
  std::vector<Rank> workers;           ///< ascending
  std::vector<Rank> servers;           ///< ascending; each has a shard
  bool direct = false;                 ///< workers update the weights themselves, in the memory of a single node
  SyncOptions sync;
  UpdateOptions update;
  bool recoverable = false;  ///< survivors complete the update of a server that dies
  std::optional<Resumed> resumed;
};

}  // namespace pyc::server
