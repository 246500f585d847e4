#include "services/node_groups.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>

#include "core/error.h"

namespace pyc {
namespace {

constexpr std::size_t kSlotBytes = std::size_t{4} << 20U;  // of a piece

}  // namespace

NodeGroups::NodeGroups(Engine& engine, Memory& memory, const Nodes& nodes, std::uint32_t collective)
    : engine_(engine), memory_(memory), nodes_(nodes), collective_(collective), here_(neighbours().size()) {}

std::size_t NodeGroups::place_of(Rank neighbour) const {
  const std::vector<Rank>& all = neighbours();
  return static_cast<std::size_t>(std::lower_bound(all.begin(), all.end(), neighbour) - all.begin());
}

void NodeGroups::prepare() {
  if (board_) return;
  shared_ = SharedMemory::create(GroupBoard::bytes(kSlotBytes));
  if (shared_->handle().size() >= Here::kLongestHandle) throw InternalError("the handle of shared memory is too long");
  board_ = std::make_unique<GroupBoard>(memory_, neighbours().size(), place_of(engine_.rank()),
                                        std::shared_ptr<std::byte>(shared_, shared_->data()));
}

void NodeGroups::start(const std::vector<Rank>& members, std::uint64_t number, const GroupData& data) {
  if (running_) throw InternalError("a P-Reduce was started while another is under way");
  members_ = members;
  places_.clear();
  for (const Rank r : members_) places_.push_back(place_of(r));
  number_ = number;
  data_ = data;
  begun_ = 0;
  met_ = false;
  running_ = true;
  Here here{.header = {collective_, kHere}, .number = number, .ticket = board_->last_ticket(), .handle = {}};
  std::copy(shared_->handle().begin(), shared_->handle().end(), here.handle);
  for (const Rank r : members_) {
    if (r != engine_.rank()) engine_.transport().notify(r, std::as_bytes(std::span(&here, 1)));
  }
}

bool NodeGroups::finish() {
  if (!running_) return false;
  if (!met_) {
    if (!meet()) return false;
    met_ = true;
    start_piece();
  }
  while (board_->finish()) {
    if (begun_ == data_.count) {
      running_ = false;
      return true;
    }
    ++ticket_;
    start_piece();
  }
  return false;
}

/// Whether all members are here; then they have a seat and a ticket.
bool NodeGroups::meet() {
  const std::size_t own = place_of(engine_.rank());
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (places_[i] == own) continue;
    const std::optional<Here>& here = here_[places_[i]];
    if (!here) return false;
    if (here->number != number_) {
      throw InternalError("preduce: rank " + std::to_string(engine_.rank()) + " is in the P-Reduce of " +
                          list_ranks(members_) + ", rank " + std::to_string(members_[i]) +
                          " in another one with it: another group, count, element type or operation");
    }
  }
  ticket_ = board_->last_ticket();
  for (const std::size_t place : places_) {
    if (place == own) continue;
    const Here& here = *here_[place];
    ticket_ = std::max(ticket_, here.ticket);
    if (!board_->has(place)) {
      const auto memory = SharedMemory::open(here.handle);
      board_->seat(place, std::shared_ptr<std::byte>(memory, memory->data()));
    }
    here_[place].reset();  // now: it may come to the next group before this rank has ended
  }
  ++ticket_;
  return true;
}

void NodeGroups::start_piece() {
  const std::size_t most = kSlotBytes / size_of(data_.elements().accumulator);
  GroupData piece = data_;
  piece.values += begun_ * size_of(data_.type);
  piece.count = std::min(most, data_.count - begun_);
  begun_ += piece.count;
  board_->start(places_, ticket_, piece);
}

void NodeGroups::on_notice(Rank from, ConstBytes bytes) {
  Here here;
  if (bytes.size() != sizeof here) throw InternalError("a notice has the wrong length");
  std::memcpy(&here, bytes.data(), sizeof here);
  here_[place_of(from)] = here;
}

std::vector<Rank> NodeGroups::gone() const {
  std::vector<Rank> ranks;
  if (!board_) return ranks;
  for (const std::size_t place : board_->gone()) ranks.push_back(neighbours()[place]);
  return ranks;
}

}  // namespace pyc
