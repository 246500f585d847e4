// A check of the plans of all ranks together, without engine or transport. Nothing is computed but which elements of
// whose contributions are where: a plan that passes is right for every operation and element type.
//
//   * Races: any two ops of a plan that touch the same elements, one of them writing, are ordered by the plan.
//   * Messages: every send has its receive, of the same length.
//   * Execution on symbols, in an order drawn by `seed`: every op fires exactly once, nothing waits for ever, nothing
//   is
//     left on the wire, and every result holds every contribution exactly once, element by element.
//   * Presence: all elements of a slice that is sent, reduced or copied have the same contributors, because one header
//     speaks for all of them (engine/presence.h).
//
// Findings are for people and name the rank and the op; there are none if the plans are right.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace pyc {

struct CheckOptions {
  std::uint64_t seed = 0;  ///< of the order of execution
  /// Execute as a broken engine would, in which an op fires at every predecessor past `need`: for tests of the check.
  bool refire = false;
  // The buffers of check_allreduce; the same one twice: in place.
  BufferId in{0};
  BufferId out{1};
};

std::vector<std::string> check_allreduce(std::span<const Schedule> plans, const CheckOptions& options = {});

/// Plans as a partial allreduce executes them: buffer 0 is the data; the `starters` fire "start"; the signal
/// "activated" makes a rank put its data in place, which the `contributors` have, and fire "release"; at the signal
/// "result" it reads the data. Without starters nobody may be activated.
std::vector<std::string> check_partial_allreduce(std::span<const Schedule> plans, std::span<const Rank> starters,
                                                 std::span<const Rank> contributors, const CheckOptions& options = {});

/// The same with every rank contributing.
std::vector<std::string> check_activation(std::span<const Schedule> plans, std::span<const Rank> starters,
                                          const CheckOptions& options = {});

}  // namespace pyc
