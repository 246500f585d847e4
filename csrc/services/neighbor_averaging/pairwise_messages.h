// What ranks that average in pairs say to each other.
#pragma once

#include <cstdint>

#include "services/common/mailbox.h"

namespace pyc {

enum class Refusal : std::uint64_t {
  kBusy,    ///< in another average by messages
  kPaused,  ///< all models are to become equal
  kLeft,
  kFailed,  ///< its device has
};

struct AverageRequest {
  std::uint64_t number;  // of this requester's requests
};
struct AverageAccepted {
  std::uint64_t number;
};
struct AverageDeclined {
  std::uint64_t number;
  Refusal why;
};
struct LeftAveraging {};  // to every rank
struct ModelLost {};      // to every rank: averages with its model no more

using PairwiseMailbox = Mailbox<AverageRequest, AverageAccepted, AverageDeclined, LeftAveraging, ModelLost>;

}  // namespace pyc
