#include "services/partial_reduce/handshake.h"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string_view>

#include "core/error.h"
#include "core/splitmix.h"

namespace pyc {
namespace {

constexpr std::uint32_t kHashBits = 0x7fffffff;

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
         a.on_device == b.on_device;
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
          .on_device = wanted.on_device ? 1U : 0U};
  number_ = mix(own_.group ^ mix(own_.count));
  number_ = mix(number_ ^ static_cast<std::uint64_t>(own_.type));
  number_ = mix(number_ ^ static_cast<std::uint64_t>(own_.op));
  arrivals_[index(engine_.rank())] = {own_, handle};
  for (const Rank r : members_) {
    if (r != engine_.rank()) mailbox_.send(r, own_, handle);
  }
}

void Handshake::arrived(Rank from, const Arrival& message, std::span<const char> handle) {
  arrivals_[index(from)] = {message, std::string(handle.begin(), handle.end())};
}

std::uint64_t Handshake::ticket_of(Rank member) const {
  const std::optional<Come>& come = arrivals_[index(member)];
  return come ? come->arrival.ticket : 0;
}

std::string Handshake::handle_of(Rank member) const {
  const std::optional<Come>& come = arrivals_[index(member)];
  return come ? come->handle : std::string();
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
    const std::optional<Come>& come = arrivals_[index(r)];
    if (begun_ || !come || are_alike(come->arrival, own_)) continue;
    const Arrival& theirs = come->arrival;
    std::string group =
        theirs.group == own_.group ? "the same group" : "another group, of " + std::to_string(theirs.size) + " ranks";
    const bool is_same = theirs.count == own_.count && theirs.group == own_.group && theirs.on_device == own_.on_device;
    if (theirs.algorithm != own_.algorithm && is_same) {
      group += ", but another algorithm: PYC_SELECTION must name the same table on all ranks";
    }
    return std::make_exception_ptr(MismatchError(
        "preduce: rank " + std::to_string(engine_.rank()) + " is in the P-Reduce of " + list_ranks(members_) + " (" +
        text_of(own_) + "), rank " + std::to_string(r) + " in another one with it (" + text_of(theirs) + ", " + group +
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
  const std::optional<Withdrawal>& withdrawal = withdrawn_[index(member)];
  if (!has_come(member)) return !withdrawal && !engine_.has_left(member);
  if (!withdrawal || withdrawal->number != number_) return true;
  // Once begun, a mismatch is one of the same group's next P-Reduce: it may come to that before this rank has ended.
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
