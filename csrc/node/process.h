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

/// Whether there is a process of that number, for one system call; it may have ended and not be reaped, or be another.
bool exists(const ProcessId& process);

enum class ProcessState : std::uint8_t { kAlive, kStopped, kGone };
ProcessState state_of(const ProcessId& process);

}  // namespace pyc
