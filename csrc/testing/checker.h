// Checks the plans of all ranks together, without an engine or a transport. It only tracks where the elements of each
// contribution are, so a plan that passes is right for every operation and element type.
//
//   * Races: two ops of a plan that touch the same elements, one of them writing, are ordered by the plan.
//   * Messages: every send has a receive of the same length.
//   * Execution on symbols, in an order drawn by `seed`: every op fires exactly once, no op waits indefinitely, no
//     message is left on the wire, and every result has every contribution exactly once, element by element.
//   * Presence: a slice that is sent, reduced or copied has the same contributors in all elements, because it has one
//     header (engine/presence.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace pyc {

struct CheckOptions {
  std::uint64_t seed = 0;  ///< of the order of execution
  /// Execute like a broken engine, in which an op fires at every predecessor past `need`: for tests of the checker.
  bool refire = false;
  // The buffers of check_allreduce; equal for an in-place plan.
  BufferId in{0};
  BufferId out{1};
};

std::vector<std::string> check_allreduce(std::span<const Schedule> plans, const CheckOptions& options = {});

/// Executes plans like a partial allreduce. Buffer 0 is the data. The `starters` fire "start". At the signal
/// "activated" a rank writes its data, if it is one of the `contributors`, and fires "release". At the signal "result"
/// it reads the data. Without starters, no rank may be activated.
std::vector<std::string> check_partial_allreduce(std::span<const Schedule> plans, std::span<const Rank> starters,
                                                 std::span<const Rank> contributors, const CheckOptions& options = {});

/// The same with every rank contributing.
std::vector<std::string> check_activation(std::span<const Schedule> plans, std::span<const Rank> starters,
                                          const CheckOptions& options = {});

}  // namespace pyc
