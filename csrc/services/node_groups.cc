#include "services/node_groups.h"

#include <algorithm>

namespace pyc {
namespace {

constexpr std::size_t kSlotBytes = std::size_t{4} << 20U;  // of a piece

}  // namespace

NodeGroups::NodeGroups(Rank rank, Memory& memory, const Nodes& nodes) : rank_(rank), memory_(memory), nodes_(nodes) {}

void NodeGroups::prepare() {
  if (board_) return;
  shared_ = SharedMemory::create(GroupBoard::bytes(kSlotBytes));
  board_ = std::make_unique<GroupBoard>(memory_, nodes_.neighbours(rank_).size(), nodes_.place_of(rank_),
                                        std::shared_ptr<std::byte>(shared_, shared_->data()));
}

void NodeGroups::seat(Rank neighbour, const std::string& handle) {
  const std::size_t place = nodes_.place_of(neighbour);
  if (board_->has(place)) return;
  const auto memory = SharedMemory::open(handle);
  board_->seat(place, std::shared_ptr<std::byte>(memory, memory->data()));
}

void NodeGroups::start(const std::vector<Rank>& members, std::uint64_t ticket, const GroupData& data) {
  places_.clear();
  for (const Rank r : members) places_.push_back(nodes_.place_of(r));
  ticket_ = ticket;
  data_ = data;
  begun_ = 0;
  start_piece();
}

bool NodeGroups::finish() {
  while (board_->finish()) {
    if (begun_ == data_.count) return true;
    ++ticket_;
    start_piece();
  }
  return false;
}

void NodeGroups::start_piece() {
  const std::size_t most = kSlotBytes / size_of(data_.elements().accumulator);
  GroupData piece = data_;
  piece.values += begun_ * size_of(data_.type);
  piece.count = std::min(most, data_.count - begun_);
  begun_ += piece.count;
  board_->start(places_, ticket_, piece);
}

std::vector<Rank> NodeGroups::gone() const {
  std::vector<Rank> ranks;
  if (!board_) return ranks;
  for (const std::size_t place : board_->gone()) ranks.push_back(nodes_.neighbours(rank_)[place]);
  return ranks;
}

}  // namespace pyc
