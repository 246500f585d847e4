// An engine's settings in environment variables.
#pragma once

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "diagnostics/trace.h"
#include "transport/transport.h"

namespace pyc {

/// `communicator`: its number in this process.
inline std::unique_ptr<Trace> trace_from_environment(const Transport& transport, int communicator, std::string group) {
  const char* path = std::getenv("PYC_TRACE");
  if (path == nullptr || *path == '\0') return nullptr;
  return std::make_unique<Trace>(path, transport.rank(), transport.size(), communicator, std::move(group));
}

/// PYC_FLIGHT_ROUNDS, which Python has checked.
inline std::size_t flight_rounds() {
  const char* const text = std::getenv("PYC_FLIGHT_ROUNDS");
  return text == nullptr || *text == '\0' ? 256 : std::strtoul(text, nullptr, 10);
}

/// PYC_STALL_WARNING, which Python has checked.
inline Seconds stall_warning() {
  const char* const text = std::getenv("PYC_STALL_WARNING");
  if (text == nullptr || *text == '\0') return 30;
  char* end = nullptr;
  const Seconds after = std::strtod(text, &end);
  return end == text || !std::isfinite(after) ? -1 : after;  // "none", "inf"
}

inline int next_communicator() {
  static std::atomic<int> count{0};
  return count++;
}

}  // namespace pyc
