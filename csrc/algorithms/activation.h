// How a round that one rank starts reaches all others: the activation of eager-SGD section 4.1.1, Fig. 6.
#pragma once

#include <string>

#include "schedule/builder.h"

namespace pyc {

/// What a plan of activation offers to its owner.
struct Activation {
  OpId start;   ///< trigger: this rank starts the round
  OpId active;  ///< fires when the round has reached this rank
  Rank root;    ///< the rank that must be asked to start too; kNoRank: none, a start at any rank reaches all
};

/// By dissemination: a union of P binomial trees, one from each initiator.
Activation activate_by_dissemination(ScheduleBuilder& s);

/// By one tree: whoever starts asks the root, which tells everybody.
Activation activate_by_tree(ScheduleBuilder& s);

/// "dissemination" or "tree"; std::invalid_argument for any other name.
Activation activate(const std::string& how, ScheduleBuilder& s);

}  // namespace pyc
