// The process of a rank, and its state.
#pragma once

#include <cstdint>

namespace pyc {

inline constexpr std::uint64_t kStartUnknown = 0;

/// The number of a process is reused after its end. The number and the start time together are unique.
struct ProcessId {
  std::int32_t number = 0;
  std::uint64_t started = kStartUnknown;  // kStartUnknown: the number must be enough

  static ProcessId own();
};

/// Whether a process with that number exists. Costs one system call and no file descriptor. It may be another process,
/// or a zombie.
bool exists(const ProcessId& process);

enum class ProcessState : std::uint8_t { kAlive, kStopped, kGone };
/// kAlive if unknown.
ProcessState state_of(const ProcessId& process);

}  // namespace pyc
