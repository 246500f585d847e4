// What a call waits for, for the text of a StallError.
#pragma once

#include <cstdint>
#include <optional>

#include "core/types.h"
#include "services/common/rank_state.h"

namespace pyc {

/// What a rank has not done, for which a call waits.
struct Awaited {
  Rank rank;
  const char* what;            ///< "the update of iteration # of @": # stands for `number`, @ for the ranks
  std::uint64_t number = 0;    ///< in `what`
  std::uint64_t question = 0;  ///< what the rank is asked, see Service::progress
  // NOLINTNEXTLINE(readability-redundant-member-init): GCC warns where an initializer leaves out a member without one
  std::optional<RankState> known = {};  ///< it is not asked: that is how it is, unless its process is stopped or gone
};

}  // namespace pyc
