#include "services/neighbor_averaging/neighborhood_board.h"

#include <new>
#include <utility>

namespace pyc {

std::size_t NeighborhoodBoard::bytes(std::size_t buffer_bytes, std::uint64_t buffers) {
  return kPage + (buffers * stride_of(buffer_bytes) + kPage - 1) / kPage * kPage;
}

NeighborhoodBoard::NeighborhoodBoard(std::shared_ptr<std::byte> memory, std::size_t local, std::size_t buffer_bytes,
                                     std::uint64_t buffers)
    : memory_(std::move(memory)),
      local_(local),
      buffers_(buffers),
      stride_(stride_of(buffer_bytes)),
      rank_bytes_(bytes(buffer_bytes, buffers)) {
  static_assert(sizeof(Head) <= kPage);
  ::new (start_of(local_)) Head;
}

}  // namespace pyc
