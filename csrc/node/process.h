// Which process a rank is, and how it is.
#pragma once

#include <cstdint>

namespace pyc {

inline constexpr std::uint64_t kStartUnknown = 0;

/// A process number is used again after its process has ended; together with the start time it is not.
struct ProcessId {
  std::int32_t number = 0;
  std::uint64_t started = kStartUnknown;  // then the number alone says which it is

  static ProcessId own();
};

/// Whether there is a process of that number, for one system call and no file descriptor. It may be another, or have
/// ended, as long as its parent has not asked how.
bool exists(const ProcessId& process);

enum class ProcessState : std::uint8_t { kAlive, kStopped, kGone };
/// Alive if it cannot be told.
ProcessState state_of(const ProcessId& process);

}  // namespace pyc
