// The text of a StallError: what does not complete, and whom it waits for.
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
  RoundNumber round;  // kNoRound: it has no number
  Seconds waited;
  bool flush;
  std::vector<Report> reports;                        // by rank
  std::vector<Rank> gave_up;                          // in an earlier collective call
  std::function<std::string(std::uint32_t)> name_of;  // of a collective, by id
  std::string why_silent = "stopped or gone";
  std::string if_all_arrived = "every rank has arrived: the round is slow, wait again";
};

std::string text_of_stall(const Stall& stall);

/// Of a rank that lives and has not done its part: it waits in a call of another collective, or computes. `called`:
/// when it last called this one. Under the engine's progress lock.
Report report_of_absent(Engine& engine, const Collective& collective, Rank rank, Seconds called);

}  // namespace pyc
