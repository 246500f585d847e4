// Reductions among the devices of several processes by a library of the devices' vendor: NCCL. No call waits for
// another process to call, but the first ones of a process may take long, and so may the end of a communicator.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "core/types.h"

namespace pyc {

class Stream;

/// Names a communicator to those who join it.
using CommunicatorId = std::array<char, 128>;

/// One member's part of a communicator. Its end gives up what is under way, and the others, who would wait for it for
/// ever, must end theirs too.
class Communicator {
 public:
  virtual ~Communicator() = default;

  /// Whether the last call, or joining, is over, and its work is queued. Until then nothing else is asked of it. Throws
  /// DeviceError.
  virtual bool is_settled() = 0;
  /// Queues on `stream`: data = the reduction of all members' data, in place. The same call on all members, which need
  /// not come to it at the same time: streams wait. AVG sums. `count` is in elements of `type`.
  virtual void allreduce(Stream& stream, std::byte* data, std::size_t count, DataType type, ReduceOp op) = 0;
};

class CommunicatorLibrary {
 public:
  virtual ~CommunicatorLibrary() = default;

  /// As in "2.32.3"; the same on all members.
  virtual std::string version() const = 0;
  /// Why several members may not be on one device; empty: they may.
  virtual std::string why_not_shared() const = 0;
  /// By one of the members, for all of them.
  virtual CommunicatorId new_id() = 0;
  /// Begins to join a communicator of `size` members as the one with this number. Throws DeviceError.
  virtual std::unique_ptr<Communicator> join(const CommunicatorId& id, std::size_t size, std::size_t number) = 0;
};

/// A library, or why there is none.
struct CommunicatorFinding {
  CommunicatorLibrary* library = nullptr;
  std::string reason;  ///< empty if there is one
};

}  // namespace pyc
