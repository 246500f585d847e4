#include "services/partial_reduce/handshake.h"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/splitmix.h"

namespace pyc {
namespace {

constexpr std::uint32_t kHashBits = 0x7ffffff;
constexpr std::uint32_t kCallerBits = 0xf;
static_assert(kCallers.size() <= kCallerBits + 1);

std::uint64_t hash_of(const std::vector<Rank>& members) {
  std::uint64_t hash = members.size();
  for (const Rank rank : members) hash = mix(hash ^ static_cast<std::uint64_t>(rank));
  return hash;
}

std::uint32_t hash_of(const std::string& name) {
  std::uint64_t hash = name.size();
  for (const char c : name) hash = mix(hash ^ static_cast<std::uint64_t>(static_cast<unsigned char>(c)));
  return static_cast<std::uint32_t>(hash);
}

bool are_alike(const Arrival& a, const Arrival& b) {
  return a.group == b.group && a.count == b.count && a.type == b.type && a.op == b.op && a.algorithm == b.algorithm &&
         a.on_device == b.on_device && a.caller == b.caller;
}

std::string text_of(const Arrival& arrival) {
  return std::string(name_of(arrival.op)) + " of " + std::to_string(arrival.count) + " " +
         std::string(name_of(arrival.type)) + (arrival.on_device != 0 ? " on a device" : "");
}

}  // namespace

Handshake::Handshake(Engine& engine, const PreduceMailbox& mailbox)
    : engine_(engine),
      mailbox_(mailbox),
      arrivals_(static_cast<std::size_t>(engine.size())),
      owed_(static_cast<std::size_t>(engine.size())),
      reasons_(static_cast<std::size_t>(engine.size())),
      withdrawn_(static_cast<std::size_t>(engine.size())) {}

void Handshake::come(const Wanted& wanted, std::uint64_t ticket, const std::string& handle) {
  members_ = wanted.members;
  begun_ = false;
  own_ = {.group = hash_of(members_),
          .count = wanted.data.count,
          .ticket = ticket,
          .type = wanted.data.type,
          .op = wanted.data.op,
          .size = static_cast<std::uint16_t>(members_.size()),
          .algorithm = hash_of(wanted.algorithm) & kHashBits,
          .caller = wanted.caller & kCallerBits,
          .on_device = wanted.on_device ? 1U : 0U};
  number_ = mix(own_.group ^ mix(own_.count));
  number_ = mix(number_ ^ static_cast<std::uint64_t>(own_.type));
  number_ = mix(number_ ^ static_cast<std::uint64_t>(own_.op));
  arrivals_[index(engine_.rank())].assign(1, {own_, handle, {}});
  for (const Rank r : members_) {
    if (r != engine_.rank()) mailbox_.send(r, own_, handle);
  }
}

void Handshake::arrived(Rank from, const Arrival& message, std::span<const char> handle) {
  keep(from, {message, std::string(handle.begin(), handle.end()), {}});
}

void Handshake::refused(Rank from, std::span<const char> piece) {
  std::string& reason = reasons_[index(from)];
  reason.append(piece.data(), piece.size());
  if (piece.size() == mailbox::kLongestTail<RefusedCall>) return;
  keep(from, {{}, {}, std::exchange(reason, {})});
}

void Handshake::keep(Rank from, Come come) {
  if (owed_[index(from)] > 0) {
    --owed_[index(from)];
  } else {
    arrivals_[index(from)].push_back(std::move(come));
  }
}

void Handshake::refuse(const std::vector<Rank>& members, const std::string& reason) {
  constexpr std::size_t kMost = mailbox::kLongestTail<RefusedCall>;
  for (const Rank r : members) {
    if (r == engine_.rank()) continue;
    for (std::size_t first = 0; first <= reason.size(); first += kMost) {  // the last is shorter, and may be empty
      mailbox_.send(r, RefusedCall{}, std::string_view(reason).substr(first, kMost));
    }
  }
  skip(members);
}

/// Drops the members' arrivals at their next P-Reduce, now or when they are received.
void Handshake::skip(const std::vector<Rank>& members) {
  for (const Rank r : members) {
    if (!arrivals_[index(r)].empty()) {
      arrivals_[index(r)].pop_front();
    } else if (r != engine_.rank()) {
      ++owed_[index(r)];
    }
  }
}

const Handshake::Come* Handshake::oldest(Rank member) const {
  const std::deque<Come>& arrivals = arrivals_[index(member)];
  return arrivals.empty() ? nullptr : &arrivals.front();
}

std::uint64_t Handshake::ticket_of(Rank member) const {
  const Come* come = oldest(member);
  return come != nullptr ? come->arrival.ticket : 0;
}

std::string Handshake::handle_of(Rank member) const {
  const Come* come = oldest(member);
  return come != nullptr ? come->handle : std::string();
}

bool Handshake::has_come(Rank member) const { return begun_ || oldest(member) != nullptr; }

bool Handshake::complete() const {
  return std::all_of(members_.begin(), members_.end(), [this](Rank r) { return has_come(r); });
}

void Handshake::begin() {
  begun_ = true;
  for (const Rank r : members_) arrivals_[index(r)].pop_front();
}

// ------------------------------------------------------------------------------------------------ errors

std::exception_ptr Handshake::mismatch() const {
  for (const Rank r : members_) {
    const Come* come = oldest(r);
    if (begun_ || come == nullptr || come->refusal || are_alike(come->arrival, own_)) continue;
    const Arrival& theirs = come->arrival;
    std::string group =
        theirs.group == own_.group ? "the same group" : "another group, of " + std::to_string(theirs.size) + " ranks";
    const bool is_same = theirs.count == own_.count && theirs.group == own_.group && theirs.on_device == own_.on_device;
    if (theirs.algorithm != own_.algorithm && is_same) {
      group += ", but another algorithm: PYC_SELECTION must name the same table on all ranks";
    }
    if (theirs.caller != own_.caller) {
      const auto name = [](const Arrival& arrival) { return std::string(kCallers.at(arrival.caller)); };
      group += "; ranks make different calls: " + name(own_) + " here, " + name(theirs) + " there";
    }
    return std::make_exception_ptr(MismatchError(
        "preduce: rank " + std::to_string(engine_.rank()) + " is in the P-Reduce of " + list_ranks(members_) + " (" +
        text_of(own_) + "), rank " + std::to_string(r) + " in another one with it (" + text_of(theirs) + ", " + group +
        "); preduce is unusable on this communicator now"));
  }
  return nullptr;
}

std::exception_ptr Handshake::take_refusal() {
  for (const Rank r : members_) {
    const Come* come = begun_ ? nullptr : oldest(r);
    if (come == nullptr || !come->refusal) continue;
    const MismatchError error("preduce: the P-Reduce of " + list_ranks(members_) + " is refused on rank " +
                              std::to_string(r) + ": " + *come->refusal);
    skip(members_);
    return std::make_exception_ptr(error);
  }
  return nullptr;
}

std::exception_ptr Handshake::obstacle() const {
  for (const Rank r : members_) {
    if (!will_come(r)) return error_of(r);
  }
  return nullptr;
}

/// Whether the member will arrive, or has arrived and will perform the P-Reduce.
bool Handshake::will_come(Rank member) const {
  const std::optional<Withdrawal>& withdrawal = withdrawn_[index(member)];
  if (!has_come(member)) return !withdrawal && !engine_.has_left(member);
  if (!withdrawal || withdrawal->number != number_) return true;
  // Once begun, a mismatch is in the group's next P-Reduce, which the member may enter before this rank ends this one.
  return withdrawal->reason == Reason::kGaveUp || (begun_ && withdrawal->reason == Reason::kMismatch);
}

std::exception_ptr Handshake::error_of(Rank member) const {
  const std::string who =
      "preduce: the P-Reduce of " + list_ranks(members_) + " cannot be performed: rank " + std::to_string(member);
  const std::string end = "; preduce is unusable on this communicator now";
  const std::optional<Withdrawal>& withdrawal = withdrawn_[index(member)];
  if (!withdrawal) return std::make_exception_ptr(ClosedError(who + " has closed the communicator" + end));
  switch (withdrawal->reason) {
    case Reason::kGaveUp:
      return std::make_exception_ptr(ClosedError(who + " gave up an earlier one and comes to none any more" + end));
    case Reason::kMismatch:
      return std::make_exception_ptr(MismatchError(who + " found members of one in different ones" + end));
    case Reason::kMemory:
      return std::make_exception_ptr(std::runtime_error(who + " could not open the memory of others" + end));
  }
  return nullptr;
}

void Handshake::withdraw(Reason reason) {
  for (Rank r = 0; r < engine_.size(); ++r) {
    if (r != engine_.rank()) mailbox_.send(r, Withdrawal{number_, reason});
  }
}

}  // namespace pyc
