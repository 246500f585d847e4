// Contributions that a call of Hop waits for.
#pragma once

#include <cstdint>

#include "services/common/awaited.h"
#include "services/hop/options.h"

namespace pyc::hop {

// Questions to a rank: has it entered an iteration, or sent its update?
constexpr std::uint64_t has_entered(Iteration iteration) { return 2 * iteration; }
constexpr std::uint64_t has_sent(Iteration iteration) { return 2 * iteration + 1; }
/// No rank affirms this question: the asking rank would know the answer.
constexpr std::uint64_t kNothing = has_entered(kNeverIteration / 2);

/// Or of a later iteration, under bounded staleness.
inline Awaited update_of(Rank rank, Iteration iteration) {
  return {rank, "the update of iteration # of @", iteration, has_sent(iteration)};
}
inline Awaited any_update_of(Rank rank) { return {rank, "an update of @", 0, kNothing}; }
inline Awaited token_of(Rank rank, Iteration iteration, Iteration max_ig) {
  return {rank, "a token for iteration # of @", iteration, has_entered(iteration - max_ig)};
}
inline Awaited any_token_of(Rank rank) { return {rank, "a token of @", 0, kNothing}; }
/// A rank acknowledges before it enters the next iteration.
inline Awaited acknowledgement_of(Rank rank, Iteration iteration) {
  return {rank, "the acknowledgement of iteration # of @", iteration, has_entered(iteration + 1)};
}
/// The end of an earlier transfer that uses the memory for that iteration.
inline Awaited transfer_to(Rank rank, Iteration iteration) {
  return {rank, "the end of a transfer before iteration # to @", iteration, has_entered(iteration)};
}
inline Awaited room_at(Rank rank, Iteration iteration) {
  return {rank, "room for the update of iteration # at @", iteration, kNothing};
}

}  // namespace pyc::hop
