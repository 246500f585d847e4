#include "services/neighbor_averaging/neighborhood_board.h"

#include <new>
#include <utility>

namespace pyc {

std::size_t NeighborhoodBoard::bytes(std::size_t buffer_bytes, std::uint64_t buffers) {
  return kPage + (buffers * stride_of(buffer_bytes) + kPage - 1) / kPage * kPage;
}

NeighborhoodBoard::NeighborhoodBoard(std::shared_ptr<std::byte> memory, std::size_t ranks, std::size_t local,
                                     std::size_t buffer_bytes, std::uint64_t buffers)
    : memory_(std::move(memory)),
      ranks_(ranks),
      local_(local),
      buffers_(buffers),
      stride_(stride_of(buffer_bytes)),
      rank_bytes_(bytes(buffer_bytes, buffers)) {
  static_assert(sizeof(Head) <= kPage);
  ::new (start_of(local_)) Head{.process = ProcessId::own(), .events = {}};
  at(local_).events.check();
}

std::vector<std::size_t> NeighborhoodBoard::gone() const {
  std::vector<std::size_t> ranks;
  for (std::size_t i = 0; i < ranks_; ++i) {
    if (i != local_ && state(i) == ProcessState::kGone) ranks.push_back(i);
  }
  return ranks;
}

}  // namespace pyc
