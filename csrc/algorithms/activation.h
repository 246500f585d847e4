// How a round that one rank starts reaches all other ranks: the activation of eager-SGD section 4.1.1, Fig. 6.
#pragma once

#include <string>
#include <vector>

#include "algorithms/cost.h"
#include "schedule/builder.h"

namespace pyc {

struct Activation {
  OpId start;   ///< trigger to start the round from this rank
  OpId active;  ///< fires when the round has reached this rank
  Rank asks;    ///< rank that must also be asked to start; kNoRank: none
  Rank root;    ///< rank whose start reaches all ranks; kNoRank: any rank's start does
};

Activation activate_by_dissemination(ScheduleBuilder& s);

/// A PostalTree of this latency. A rank that starts asks another rank to start too, and so on up to the root.
Activation activate_by_tree(ScheduleBuilder& s, Rank latency);

/// "dissemination", "tree" or "tree:K"; std::invalid_argument for any other name.
Activation activate(const std::string& how, ScheduleBuilder& s);

/// The activations among which "auto" chooses.
std::vector<std::string> activation_candidates();

/// Until the last rank is active if one rank starts. A further phase has the messages of the busiest rank if all ranks
/// start at once, which delay the activation.
Course course_of_activation(const std::string& how, Rank size);

}  // namespace pyc
