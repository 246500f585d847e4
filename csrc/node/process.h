// Which process a rank is, and how it is.
#pragma once

#include <cstdint>

namespace pyc {

/// A process number is used again after its process has ended; together with the start time it is not.
struct ProcessId {
  std::int32_t number = 0;
  std::uint64_t started = 0;

  static ProcessId own();
};

enum class ProcessState : std::uint8_t { kAlive, kStopped, kGone };
ProcessState state_of(const ProcessId& process);

}  // namespace pyc
