// Workers that ask again as soon as they are answered: what the generator itself costs.
#pragma once

#include <cstdint>

#include "groups/generator.h"

namespace pyc {

/// All workers of a new generator ask, in a random order, until `requests` requests were made; a group is performed, in
/// no time, as soon as its last member has asked. Returns how many groups were performed.
std::uint64_t run_closed_loop(GroupGenerator& generator, std::uint64_t requests, std::uint64_t seed);

}  // namespace pyc
