// Handles of all kinds of collectives. The bindings make them for Python's objects, mpi_objects.cc for programs without
// Python.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "c_api/allreduce_handle.h"
#include "c_api/handle.h"
#include "services/neighbor_averaging/neighborhood.h"
#include "services/neighbor_averaging/pairwise_averaging.h"
#include "services/parameter_server/finite.h"
#include "services/parameter_server/parameter_server.h"
#include "services/partial_reduce/explicit_groups.h"
#include "services/partial_reduce/partial_reduce.h"

namespace pyc {

/// P-Reduces in groups that the caller names.
struct PreduceHandle final : pyc_collective {
  static constexpr Kind kKind = Kind::kPreduce;
  PreduceHandle(Common with, std::shared_ptr<Engine> on, std::shared_ptr<ExplicitGroups> of, ReduceOp by, Nodes map,
                std::vector<std::string> schedules, bool may_use_board)
      : pyc_collective(kKind, std::move(with)),
        engine(std::move(on)),
        groups(std::move(of)),
        op(by),
        nodes(std::move(map)),
        algorithms(std::move(schedules)),
        on_board(may_use_board) {}

  std::shared_ptr<Engine> engine;
  std::shared_ptr<ExplicitGroups> groups;
  ReduceOp op;
  Nodes nodes;
  std::vector<std::string> algorithms;  // of messages, by number of members
  bool on_board;                        // groups of one node use shared memory
};

/// P-Reduces in groups that a generator forms.
struct ReduceHandle final : pyc_collective {
  static constexpr Kind kKind = Kind::kReduce;
  ReduceHandle(Common with, std::shared_ptr<PartialReduce> of, std::int64_t& next)
      : pyc_collective(kKind, std::move(with)), collective(std::move(of)), next_step(next) {}

  std::shared_ptr<PartialReduce> collective;
  std::int64_t& next_step;
};

struct NeighborhoodHandle final : pyc_collective {
  static constexpr Kind kKind = Kind::kNeighborhood;
  NeighborhoodHandle(Common with, std::shared_ptr<Neighborhood> of)
      : pyc_collective(kKind, std::move(with)), collective(std::move(of)) {}

  std::shared_ptr<Neighborhood> collective;
  const void* begun_with = nullptr;  // the memory of a step that is not done
};

struct PairwiseHandle final : pyc_collective {
  static constexpr Kind kKind = Kind::kPairwise;
  PairwiseHandle(Common with, std::shared_ptr<PairwiseAveraging> of)
      : pyc_collective(kKind, std::move(with)), collective(std::move(of)) {}

  std::shared_ptr<PairwiseAveraging> collective;
};

struct ServerHandle final : pyc_collective {
  static constexpr Kind kKind = Kind::kServer;
  ServerHandle(Common with, std::shared_ptr<server::ParameterServer> of, server::NotFinite rule, bool on_worker,
               std::atomic<bool>& takes_no_part)
      : pyc_collective(kKind, std::move(with)),
        collective(std::move(of)),
        not_finite(rule),
        is_worker(on_worker),
        suspended(takes_no_part) {}

  std::shared_ptr<server::ParameterServer> collective;
  server::NotFinite not_finite;
  bool is_worker;                // this rank
  std::atomic<bool>& suspended;  // ... takes no part until its next push
};

}  // namespace pyc
