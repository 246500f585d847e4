// What a call of one rank waits for.
#pragma once

#include <cstdint>

#include "services/common/awaited.h"
#include "services/hop/options.h"

namespace pyc::hop {

// Questions to a rank: has it come to an iteration, or sent the update of it?
constexpr std::uint64_t has_entered(Iteration iteration) { return 2 * iteration; }
constexpr std::uint64_t has_sent(Iteration iteration) { return 2 * iteration + 1; }
/// Not so far: who asks would know.
constexpr std::uint64_t kNothing = has_entered(kNeverIteration / 2);

/// Of that iteration, or a later one under bounded staleness.
inline Awaited update_of(Rank rank, Iteration iteration) {
  return {rank, "the update of iteration # of @", iteration, has_sent(iteration)};
}
inline Awaited any_update_of(Rank rank) { return {rank, "an update of @", 0, kNothing}; }
/// To enter that iteration.
inline Awaited token_of(Rank rank, Iteration iteration, Iteration max_ig) {
  return {rank, "a token for iteration # of @", iteration, has_entered(iteration - max_ig)};
}
inline Awaited any_token_of(Rank rank) { return {rank, "a token of @", 0, kNothing}; }
/// It acknowledges before it goes on.
inline Awaited acknowledgement_of(Rank rank, Iteration iteration) {
  return {rank, "the acknowledgement of iteration # of @", iteration, has_entered(iteration + 1)};
}
/// Of an update of that iteration or an earlier one.
inline Awaited transfer_to(Rank rank, Iteration iteration) {
  return {rank, "the end of a transfer before iteration # to @", iteration, has_entered(iteration)};
}
/// In its queue, for the update of that iteration.
inline Awaited room_at(Rank rank, Iteration iteration) {
  return {rank, "room for the update of iteration # at @", iteration, kNothing};
}

}  // namespace pyc::hop
