// Workers that ask again as soon as they are answered, to measure the cost of the generator.
#pragma once

#include <cstdint>

#include "groups/generator.h"

namespace pyc {

/// All workers of a new generator ask in random order, until `requests` requests have been made. A group is performed,
/// in no time, when its last member has asked. Returns the number of groups performed.
std::uint64_t run_closed_loop(GroupGenerator& generator, std::uint64_t requests, std::uint64_t seed);

}  // namespace pyc
