// Messages of ranks that average in pairs.
#pragma once

#include <cstdint>

#include "services/common/mailbox.h"

namespace pyc {

enum class Refusal : std::uint64_t {
  kBusy,    ///< in another average by messages
  kPaused,  ///< all models are about to become equal
  kLeft,
  kFailed,  ///< its device has failed
};

struct AverageRequest {
  std::uint64_t number;  // counts the requester's requests
};
struct AverageAccepted {
  std::uint64_t number;
};
struct AverageDeclined {
  std::uint64_t number;
  Refusal why;
};
struct LeftAveraging {};  // to every rank
struct ModelLost {};      // to every rank: its model takes part in no average from now on

using PairwiseMailbox = Mailbox<AverageRequest, AverageAccepted, AverageDeclined, LeftAveraging, ModelLost>;

}  // namespace pyc
