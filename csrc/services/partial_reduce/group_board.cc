#include "services/partial_reduce/group_board.h"

#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <utility>

#include "core/checked.h"
#include "core/error.h"

namespace pyc {
namespace {

constexpr std::size_t kLine = 64;

}  // namespace

std::size_t GroupBoard::bytes(std::size_t slot_bytes) { return kPage + round_up(slot_bytes, kPage); }

GroupBoard::GroupBoard(std::unique_ptr<GroupSlots> slots, std::size_t ranks, std::size_t local,
                       std::shared_ptr<std::byte> own)
    : slots_(std::move(slots)), local_(local), memories_(ranks) {
  static_assert(sizeof(Head) <= kPage);
  ::new (own.get()) Head{.process = ProcessId::own(), .events = {}};
  attach(local, std::move(own));
  at(local_).events.check();
}

void GroupBoard::attach(std::size_t local, std::shared_ptr<std::byte> memory) {
  slots_->attach(local, memory.get() + kPage);
  memories_[local] = std::move(memory);
}

void GroupBoard::start(std::vector<std::size_t> members, std::uint64_t ticket, const GroupData& data) {
  if (ticket <= ticket_) throw InternalError("the tickets of a group board must grow");
  if (ticket >= kEndOfTickets || slots_->longest_piece(data) * kMostPieces < data.count) {
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

void GroupBoard::next_piece() {
  piece_ = data_;
  if (data_.values != nullptr) piece_.values += next_ * size_of(data_.type);
  piece_.count = std::min(slots_->longest_piece(data_), data_.count - next_);
  next_ += piece_.count;
  stage_ = kBegun;
}

bool GroupBoard::advance() {
  bool moved = false;
  while (!ended() && can_step()) {
    step();
    moved = true;
    if (stage_ == kCopied) break;  // the last rank to arrive never waits, but must drive its engine
  }
  return moved;
}

std::optional<std::uint32_t> GroupBoard::rings() const {
  const std::uint32_t rings = at(local_).events.rings();          // read before the checks
  if (ended() || is_working_ || can_step()) return std::nullopt;  // a device rings no rank
  return rings;
}

bool GroupBoard::can_step() const {
  if (is_working_) return slots_->is_done();
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
  if (is_working_) {
    is_working_ = false;
    constexpr std::array kNext{kDeposited, kReduced, kCopied};
    return reach(kNext.at(stage_));
  }
  switch (stage_) {
    case kBegun:
      deposit();
      break;
    case kDeposited:
      reduce_part();
      break;
    case kReduced:
      if (piece_.values != nullptr) slots_->take(piece_, members_.front());
      break;
    default:
      ++number_;
      return next_piece();
  }
  is_working_ = true;
}

// seq_cst: if two ranks arrive last at once, at least one sees both, and rings.
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
  if (piece_.values != nullptr) slots_->put(piece_);
  at(local_).present = piece_.values != nullptr;
  at(local_).weight = piece_.weight.value_or(0);
  if (members_.front() != local_) return;
  readers_ = members_;
  std::erase(readers_, local_);
  read_ = moment(kCopied);
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
  if (!present_.empty()) slots_->reduce(piece_, present_, factor(), members_.front(), begin, end - begin);
}

/// 1 / sum of the weights, each rounded as when it multiplied the values.
std::optional<double> GroupBoard::factor() const {
  if (!piece_.weight) return std::nullopt;
  const bool is_double = piece_.elements().accumulator == DataType::kFloat64;
  double weights = 0;
  for (const std::size_t member : present_) {
    const double weight = at(member).weight;
    weights += is_double ? weight : static_cast<double>(static_cast<float>(weight));
  }
  return 1 / weights;
}

std::vector<std::size_t> GroupBoard::gone() const {
  std::vector<std::size_t> ranks;
  for (std::size_t i = 0; i < memories_.size(); ++i) {
    if (has(i) && state_of(at(i).process) == ProcessState::kGone) ranks.push_back(i);
  }
  return ranks;
}

}  // namespace pyc
