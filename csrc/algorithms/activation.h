// How a round that one rank starts reaches all others: the activation of eager-SGD section 4.1.1, Fig. 6.
#pragma once

#include <string>
#include <vector>

#include "algorithms/cost.h"
#include "schedule/builder.h"

namespace pyc {

/// What a plan of activation offers to its owner.
struct Activation {
  OpId start;   ///< trigger: this rank starts the round
  OpId active;  ///< fires when the round has reached this rank
  Rank asks;    ///< the rank that must be asked to start too; kNoRank: none
  Rank root;    ///< the rank that reaches all without asking; kNoRank: any does
};

/// By dissemination: a union of P binomial trees, one from each initiator.
Activation activate_by_dissemination(ScheduleBuilder& s);

/// By one tree, a PostalTree of this latency: a rank that starts asks another one to start too, and so on up to the
/// root.
Activation activate_by_tree(ScheduleBuilder& s, Rank latency);

/// "dissemination", "tree" or "tree:K"; std::invalid_argument for any other name.
Activation activate(const std::string& how, ScheduleBuilder& s);

/// Those among which "auto" chooses.
std::vector<std::string> activation_candidates();

/// Until the last rank is active if one rank starts; and the messages of the busiest rank if all ranks start at once,
/// which they delay: a chain of its own.
Course course_of_activation(const std::string& how, Rank size);

}  // namespace pyc
