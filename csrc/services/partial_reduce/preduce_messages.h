// What the members of a group that the application gives say to each other.
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

/// The calls of the library that are P-Reduces of a given group. Members come to the same one by the same call.
inline constexpr std::array<std::string_view, 5> kCallers{"preduce", "mean", "synchronize_parameters",
                                                          "average_buffers", "broadcast"};

/// The sender has come to a P-Reduce with the receiver. The tail is the handle of its shared memory, if it needs one.
struct Arrival {
  using Tail = char;
  std::uint64_t group;  // a hash of its members
  std::uint64_t count;
  std::uint64_t ticket;  // the last that it has used
  DataType type;
  ReduceOp op;
  std::uint16_t size;            // members
  std::uint32_t algorithm : 27;  // a hash of its name
  std::uint32_t caller : 4;      // in kCallers
  std::uint32_t on_device : 1;   // its values are
};

/// Sent in place of an arrival when the sender's call was refused: no member performs the P-Reduce. Carries a piece of
/// the reason, as text; a piece shorter than the limit is the last.
struct RefusedCall {
  using Tail = char;
};

/// The sender comes to no P-Reduce any more.
struct Withdrawal {
  enum class Reason : std::uint64_t {
    kGaveUp,    // its application did, or somebody it waited for had; it stays in the one that it has come to
    kMismatch,  // it found its members to be in different ones
    kMemory,    // it cannot have the memory of the others
  };
  std::uint64_t number;  // of the P-Reduce that it had come to
  Reason reason;
};

/// How does the receiver stand to the P-Reduce that the sender has come to?
struct Inquiry {};

struct Answer {
  Report report;
};

using PreduceMailbox = Mailbox<Arrival, RefusedCall, Withdrawal, Inquiry, Answer, DeviceFailed>;

}  // namespace pyc
