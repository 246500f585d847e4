#include "core/lock_order.h"

#ifdef PYC_CHECK_LOCKS

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace pyc {
namespace {

constexpr std::array kNames{"the list of engines", "progress",         "a board",           "a pool",
                            "the recorders",       "a flight recorder", "calls of an update"};

thread_local std::array<int, kNames.size()> held{};
thread_local int exceptions = 0;

int& count_of(LockRank rank) { return held[static_cast<std::size_t>(rank)]; }

void check_none_held_from(std::size_t first, const char* wanted) {
  for (std::size_t rank = first; rank < held.size(); ++rank) {
    if (held[rank] == 0) continue;
    std::fprintf(stderr, "pycollectives: a thread takes the lock of %s and holds that of %s\n", wanted, kNames[rank]);
    std::abort();
  }
}

}  // namespace

void check_order(LockRank rank) {
  const auto number = static_cast<std::size_t>(rank);
  check_none_held_from(number, kNames[number]);
}

void check_none_held() {
  if (exceptions == 0) check_none_held_from(0, "Python");
}

void note_taken(LockRank rank) { ++count_of(rank); }
void note_released(LockRank rank) { --count_of(rank); }

GilWithLocks::GilWithLocks() { ++exceptions; }
GilWithLocks::~GilWithLocks() { --exceptions; }

}  // namespace pyc

#endif
