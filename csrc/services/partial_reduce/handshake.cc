#include "services/partial_reduce/handshake.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string_view>

#include "core/error.h"
#include "core/splitmix.h"

namespace pyc {
namespace {

template <class Notice>
Notice read(ConstBytes bytes) {
  Notice said;
  if (bytes.size() != sizeof said) throw InternalError("a notice of a P-Reduce has the wrong length");
  std::memcpy(&said, bytes.data(), sizeof said);
  return said;
}

std::uint64_t hash_of(const std::vector<Rank>& members) {
  std::uint64_t hash = members.size();
  for (const Rank rank : members) hash = mix(hash ^ static_cast<std::uint64_t>(rank));
  return hash;
}

}  // namespace

Handshake::Handshake(Engine& engine, std::uint32_t collective)
    : engine_(engine),
      collective_(collective),
      arrivals_(static_cast<std::size_t>(engine.size())),
      withdrawn_(static_cast<std::size_t>(engine.size())) {}

void Handshake::come(const std::vector<Rank>& members, const GroupData& data, std::uint64_t ticket,
                     const std::string& handle) {
  if (handle.size() >= kLongestHandle) throw InternalError("the handle of shared memory is too long");
  members_ = members;
  begun_ = false;
  own_ = {.header = {collective_, kHere},
          .group = hash_of(members),
          .count = data.count,
          .ticket = ticket,
          .type = data.type,
          .op = data.op,
          .size = static_cast<std::uint16_t>(members.size()),
          .handle = {}};
  std::copy(handle.begin(), handle.end(), own_.handle);
  number_ = mix(own_.group ^ mix(own_.count));
  number_ = mix(number_ ^ static_cast<std::uint64_t>(own_.type));
  number_ = mix(number_ ^ static_cast<std::uint64_t>(own_.op));
  arrivals_[index(engine_.rank())] = own_;
  for (const Rank r : members_) {
    if (r != engine_.rank()) tell(r, own_);
  }
}

bool Handshake::has_come(Rank member) const { return begun_ || arrivals_[index(member)]; }

bool Handshake::complete() const {
  return std::all_of(members_.begin(), members_.end(), [this](Rank r) { return has_come(r); });
}

void Handshake::begin() {
  begun_ = true;
  for (const Rank r : members_) arrivals_[index(r)].reset();
}

// ------------------------------------------------------------------------------------------------ what goes wrong

std::exception_ptr Handshake::mismatch() const {
  for (const Rank r : members_) {
    const std::optional<Arrival>& theirs = arrivals_[index(r)];
    if (begun_ || !theirs || theirs->is_for(own_)) continue;
    const std::string group =
        theirs->group == own_.group ? "the same group" : "another group, of " + std::to_string(theirs->size) + " ranks";
    return std::make_exception_ptr(MismatchError(
        "preduce: rank " + std::to_string(engine_.rank()) + " is in the P-Reduce of " + list_ranks(members_) + " (" +
        own_.what() + "), rank " + std::to_string(r) + " in another one with it (" + theirs->what() + ", " + group +
        "); preduce is unusable on this communicator now"));
  }
  return nullptr;
}

std::exception_ptr Handshake::obstacle() const {
  for (const Rank r : members_) {
    if (!will_come(r)) return error_of(r);
  }
  return nullptr;
}

/// Or has come, and has not turned back.
bool Handshake::will_come(Rank member) const {
  const std::optional<Withdrawal>& said = withdrawn_[index(member)];
  if (!has_come(member)) return !said && !engine_.has_left(member);
  if (!said || said->number != number_) return true;
  // Once begun, a mismatch is one of the same group's next P-Reduce: it may come to that before this rank has ended.
  return said->reason == Reason::kGaveUp || (begun_ && said->reason == Reason::kMismatch);
}

std::exception_ptr Handshake::error_of(Rank member) const {
  const std::string who =
      "preduce: the P-Reduce of " + list_ranks(members_) + " cannot be performed: rank " + std::to_string(member);
  const std::string end = "; preduce is unusable on this communicator now";
  const std::optional<Withdrawal>& said = withdrawn_[index(member)];
  if (!said) return std::make_exception_ptr(ClosedError(who + " has closed the communicator" + end));
  switch (said->reason) {
    case Reason::kGaveUp:
      return std::make_exception_ptr(ClosedError(who + " gave up an earlier one and comes to none any more" + end));
    case Reason::kMismatch:
      return std::make_exception_ptr(MismatchError(who + " found members of one in different ones" + end));
    case Reason::kMemory:
      return std::make_exception_ptr(std::runtime_error(who + " could not open the memory of others" + end));
  }
  return nullptr;
}

std::string Handshake::Arrival::what() const {
  return std::string(name_of(op)) + " of " + std::to_string(count) + " " + std::string(name_of(type));
}

// ------------------------------------------------------------------------------------------------ notices

void Handshake::withdraw(Reason reason) {
  for (Rank r = 0; r < engine_.size(); ++r) {
    if (r != engine_.rank()) tell(r, Withdrawal{{collective_, kWithdrawal}, number_, reason});
  }
}

template <class Notice>
void Handshake::tell(Rank rank, const Notice& notice) {
  engine_.transport().notify(rank, std::as_bytes(std::span(&notice, 1)));
}

void Handshake::on_notice(Rank from, ConstBytes bytes) {
  NoticeHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.kind == kHere) {
    arrivals_[index(from)] = read<Arrival>(bytes);
  } else {
    withdrawn_[index(from)] = read<Withdrawal>(bytes);
  }
}

}  // namespace pyc
