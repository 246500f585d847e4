#include "engine/failure_detector.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

namespace pyc {
namespace {

constexpr int kLooks = 100;  // queries to MPI, after a process has gone
constexpr auto kPause = std::chrono::milliseconds(5);

}  // namespace

std::vector<Rank> FailureDetector::dead() const {
  if (const std::optional<std::vector<Rank>> failed = transport_.failed_ranks(); failed && !failed->empty()) {
    return *failed;
  }
  return dead_neighbours();
}

std::vector<Rank> FailureDetector::dead_neighbours() const {
  std::vector<Rank> gone;
  for (const Neighbour& neighbour : neighbours_) {
    if (state_of(neighbour.process) == ProcessState::kGone) gone.push_back(neighbour.rank);
  }
  return dead_if_gone(std::move(gone));
}

bool FailureDetector::is_lowest_here() const {
  return std::none_of(neighbours_.begin(), neighbours_.end(), [this](const Neighbour& other) {
    return other.rank < transport_.rank() && state_of(other.process) == ProcessState::kAlive;
  });
}

std::vector<Rank> FailureDetector::dead_if_gone(std::vector<Rank> gone) const {
  for (int looks = 0; looks < kLooks && !gone.empty(); ++looks) {
    const std::optional<std::vector<Rank>> failed = transport_.failed_ranks();
    if (!failed) return gone;
    if (!failed->empty()) return *failed;
    std::this_thread::sleep_for(kPause);
  }
  return gone;
}

}  // namespace pyc
