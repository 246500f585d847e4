#include "services/partial_reduce/group_board.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "core/error.h"

namespace pyc {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kBlockBytes = std::size_t{8} << 10U;  // of a part: stays in the first-level cache

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

std::size_t GroupBoard::bytes(std::size_t slot_bytes) { return kPage + round_up(slot_bytes, kPage); }

GroupBoard::GroupBoard(Memory& memory, std::size_t ranks, std::size_t local, std::size_t slot_bytes,
                       std::shared_ptr<std::byte> own)
    : memory_(memory), local_(local), slot_bytes_(slot_bytes), memories_(ranks) {
  static_assert(sizeof(Head) <= kPage);
  ::new (own.get()) Head{.process = ProcessId::own(), .events = {}};
  attach(local, std::move(own));
  at(local_).events.check();
}

void GroupBoard::start(std::vector<std::size_t> members, std::uint64_t ticket, const GroupData& data) {
  if (ticket <= ticket_) throw InternalError("the tickets of a group board must grow");
  if (ticket >= kEndOfTickets || longest_piece(data) * kMostPieces < data.count) {
    throw InternalError("a word of a group board cannot hold ticket " + std::to_string(ticket) + " of " +
                        std::to_string(data.count) + " elements");
  }
  members_ = std::move(members);
  ticket_ = ticket;
  data_ = data;
  next_ = 0;
  number_ = 0;
  next_piece();
}

std::size_t GroupBoard::longest_piece(const GroupData& data) const {
  return slot_bytes_ / size_of(data.elements().accumulator) - (data.weight ? 1 : 0);
}

void GroupBoard::next_piece() {
  piece_ = data_;
  if (data_.values != nullptr) piece_.values += next_ * size_of(data_.type);
  piece_.count = std::min(longest_piece(data_), data_.count - next_);
  next_ += piece_.count;
  stage_ = kBegun;
}

bool GroupBoard::advance() {
  bool moved = false;
  while (!ended() && can_step()) {
    step();
    moved = true;
    if (stage_ == kCopied) break;  // whoever comes last each time never waits, and has an engine to drive
  }
  return moved;
}

std::optional<std::uint32_t> GroupBoard::rings() const {
  const std::uint32_t rings = at(local_).events.rings();  // before looking
  if (ended() || can_step()) return std::nullopt;
  return rings;
}

bool GroupBoard::can_step() const {
  switch (stage_) {
    case kBegun:
      return all_have(readers_, read_);
    case kDeposited:
    case kReduced:
      return all_have(members_, moment(stage_));
    default:
      return true;
  }
}

void GroupBoard::step() {
  switch (stage_) {
    case kBegun:
      return deposit();
    case kDeposited:
      return reduce_part();
    case kReduced:
      if (piece_.values != nullptr) {
        memory_.store(piece_.elements(), piece_.values, slot(members_.front()), piece_.count, 1);
      }
      return reach(kCopied);
    default:
      ++number_;
      next_piece();
  }
}

// seq_cst: of two who come last at once, one sees both, and rings.
bool GroupBoard::all_have(const std::vector<std::size_t>& members, std::uint64_t moment) const {
  return std::all_of(members.begin(), members.end(),
                     [&](std::size_t member) { return at(member).reached.load() >= moment; });
}

void GroupBoard::reach(Stage stage) {
  stage_ = stage;
  at(local_).reached.store(moment(stage));
  if (!all_have(members_, moment(stage))) return;
  const std::size_t waiting = stage == kCopied ? 1 : members_.size();  // the first member's slot is free again
  for (std::size_t i = 0; i < waiting; ++i) {
    if (members_[i] != local_) at(members_[i]).events.ring();
  }
}

void GroupBoard::deposit() {
  if (piece_.values != nullptr) load_values(memory_, piece_, slot(local_));
  at(local_).present = piece_.values != nullptr;
  if (members_.front() == local_) {
    readers_ = members_;
    std::erase(readers_, local_);
    read_ = moment(kCopied);
  }
  reach(kDeposited);
}

void GroupBoard::reduce_part() {
  present_.clear();
  for (const std::size_t member : members_) {
    if (at(member).present) present_.push_back(member);
  }
  const auto mine = static_cast<std::size_t>(std::find(members_.begin(), members_.end(), local_) - members_.begin());
  const std::size_t part = round_up((piece_.count + members_.size() - 1) / members_.size(), kLine);
  const std::size_t begin = std::min(mine * part, piece_.count);
  const std::size_t end = std::min(begin + part, piece_.count);
  const std::size_t block = kBlockBytes / size_of(piece_.elements().accumulator);
  if (!present_.empty()) {
    for (std::size_t first = begin; first < end; first += block) add(first, std::min(block, end - first));
  }
  reach(kReduced);
}

/// Elements [first, first + length) of the result, into the first member's slot.
void GroupBoard::add(std::size_t first, std::size_t length) const {
  const Elements elements = piece_.elements();
  const std::size_t width = size_of(elements.accumulator);
  std::byte* const into = slot(members_.front()) + first * width;
  if (present_.front() != members_.front()) memory_.copy(into, slot(present_.front()) + first * width, length * width);
  double weights = 0;
  for (const std::size_t member : present_) {
    if (piece_.weight) weights += total_weight(piece_, slot(member));
    if (member != present_.front()) {
      memory_.reduce(elements, piece_.op, into, slot(member) + first * width, length);
    }
  }
  if (piece_.weight) {
    memory_.scale(elements.accumulator, into, length, 1 / weights);
  } else if (piece_.op == ReduceOp::kAvg) {  // here, where it is once for all members
    memory_.store({elements.accumulator, elements.accumulator}, into, into, length, present_.size());
  }
}

std::vector<std::size_t> GroupBoard::gone() const {
  std::vector<std::size_t> ranks;
  for (std::size_t i = 0; i < memories_.size(); ++i) {
    if (has(i) && state_of(at(i).process) == ProcessState::kGone) ranks.push_back(i);
  }
  return ranks;
}

}  // namespace pyc
