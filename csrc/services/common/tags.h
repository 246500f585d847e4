#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "schedule/schedule.h"
#include "transport/transport.h"

namespace pyc {

/// Throws std::invalid_argument if the plan needs tags above `max_tag`.
inline void check_tags(const Schedule& plan, const std::string& algorithm, Tag max_tag) {
  const auto last_tag = static_cast<std::uint64_t>(plan.channels() + 1) * kTagStride;
  if (last_tag <= static_cast<std::uint64_t>(max_tag)) return;
  throw std::invalid_argument("algorithm '" + algorithm + "' at " + std::to_string(plan.size()) +
                              " nodes needs tags up to " + std::to_string(last_tag) + ", this MPI allows " +
                              std::to_string(max_tag));
}

}  // namespace pyc
