// Messages between the members of an explicit group.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/types.h"
#include "memory/group_data.h"
#include "services/common/mailbox.h"
#include "services/common/rank_state.h"
#include "services/partial_reduce/failure_reports.h"

namespace pyc {

/// Calls of the library that perform a P-Reduce of an explicit group. Its members must make the same call.
inline constexpr std::array<std::string_view, 5> kCallers{"preduce", "mean", "synchronize_parameters",
                                                          "average_buffers", "broadcast"};

/// The sender has entered a P-Reduce with the receiver. The tail is the handle of its shared memory, if it needs one.
struct Arrival {
  using Tail = char;
  std::uint64_t group;  // a hash of its members
  std::uint64_t count;
  std::uint64_t ticket;  // the last one that the sender has used
  DataType type;
  ReduceOp op;
  std::uint16_t size;            // number of members
  std::uint32_t algorithm : 27;  // a hash of its name
  std::uint32_t caller : 4;      // index in kCallers
  std::uint32_t on_device : 1;   // its values are on a device
};

/// Sent instead of an arrival if the sender's call was refused, so that no member performs the P-Reduce. The tail is a
/// piece of the reason; a piece shorter than the limit is the last.
struct RefusedCall {
  using Tail = char;
};

/// The sender takes part in no further P-Reduce.
struct Withdrawal {
  enum class Reason : std::uint64_t {
    kGaveUp,    // its application or a member gave up; its engine still completes the P-Reduce that it has entered
    kMismatch,  // it found members in different P-Reduces
    kMemory,    // it could not open the memory of other members
  };
  std::uint64_t number;  // of the P-Reduce that it had entered
  Reason reason;
};

/// Asks for the receiver's state in the P-Reduce that the sender has entered.
struct Inquiry {};

struct Answer {
  Report report;
};

using PreduceMailbox = Mailbox<Arrival, RefusedCall, Withdrawal, Inquiry, Answer, DeviceFailed>;

}  // namespace pyc
