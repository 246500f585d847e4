#include "services/partial_reduce/node_groups.h"

#include "services/partial_reduce/host_slots.h"

namespace pyc {

NodeGroups::NodeGroups(Rank rank, Memory& memory, const Nodes& nodes) : rank_(rank), memory_(memory), nodes_(nodes) {}

void NodeGroups::prepare() {
  if (board_) return;
  const std::size_t ranks = nodes_.neighbours(rank_).size();
  const std::size_t local = nodes_.local_rank_of(rank_);
  shared_ = SharedMemory::create(GroupBoard::bytes(GroupBoard::kLongestSlot));
  board_ = std::make_unique<GroupBoard>(std::make_unique<HostSlots>(memory_, ranks, local, GroupBoard::kLongestSlot),
                                        ranks, local, std::shared_ptr<std::byte>(shared_, shared_->data()));
}

void NodeGroups::attach(Rank neighbour, const std::string& handle) {
  const std::size_t local = nodes_.local_rank_of(neighbour);
  if (board_->has(local)) return;
  const auto memory = SharedMemory::open(handle);
  board_->attach(local, std::shared_ptr<std::byte>(memory, memory->data()));
}

void NodeGroups::start(const std::vector<Rank>& members, std::uint64_t ticket, const GroupData& data) {
  board_->start(nodes_.local_ranks_of(members), ticket, data);
}

std::vector<Rank> NodeGroups::gone() const {
  std::vector<Rank> ranks;
  if (!board_) return ranks;
  for (const std::size_t local : board_->gone()) ranks.push_back(nodes_.neighbours(rank_)[local]);
  return ranks;
}

}  // namespace pyc
