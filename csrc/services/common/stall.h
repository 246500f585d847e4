// The text of a StallError: the call that does not complete, and the ranks that it waits for.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/types.h"
#include "engine/engine.h"
#include "services/common/rank_state.h"

namespace pyc {

struct Stall {
  std::string what;
  RoundNumber round;  // kNoRound if it has no number
  Seconds waited;
  bool flush;
  std::vector<Report> reports;                        // by rank
  std::vector<Rank> gave_up;                          // in an earlier collective call
  std::function<std::string(std::uint32_t)> name_of;  // of a collective, by id
  std::string why_silent = "stopped or gone";
  std::string if_all_arrived = "every rank has arrived: the round is slow, wait again";
};

std::string text_of_stall(const Stall& stall);

/// Reports a live rank that has not done its part. `called`: its last call of `collective`. Under the progress lock.
Report report_of_absent(Engine& engine, const Collective& collective, Rank rank, Seconds called);

}  // namespace pyc
