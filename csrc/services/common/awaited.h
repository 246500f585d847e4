// Contributions that a call waits for, for the text of a StallError.
#pragma once

#include <cstdint>
#include <optional>

#include "core/types.h"
#include "services/common/rank_state.h"

namespace pyc {

struct Awaited {
  Rank rank;
  const char* what;  ///< "the update of iteration # of @": # stands for `number`, @ for the ranks
  std::uint64_t number = 0;
  std::uint64_t question = 0;  ///< sent to the rank, see Service::progress
  // NOLINTNEXTLINE(readability-redundant-member-init): GCC warns where an initializer leaves out a member without one
  std::optional<RankState> known = {};  ///< the rank is not asked; a stopped or ended process overrides this
};

}  // namespace pyc
