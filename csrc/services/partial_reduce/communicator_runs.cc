#include "services/partial_reduce/communicator_runs.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace pyc {
namespace {

constexpr char kByMessages[] = "recursive_doubling";

}  // namespace

CommunicatorRuns::CommunicatorRuns(Executor& executor, StagedRuns& staged, Rank own)
    : executor_(executor), staged_(staged), own_(own), reduction_(executor) {}

CommunicatorRuns::~CommunicatorRuns() { give_up(); }

void CommunicatorRuns::give_up() {
  is_given_up_ = true;
  communicators_.erase(members_);  // first: the end of another one may wait for work that only this ends
  communicators_.clear();
  reduction_.give_up();
}

void CommunicatorRuns::start(GroupRuns& runs, std::span<const Rank> members, const GroupData& data,
                             const std::string& algorithm, std::uint64_t number) {
  members_.assign(members.begin(), members.end());
  data_ = data;
  algorithm_ = algorithm;
  number_ = number;
  const bool has = communicators_.contains(members_);
  const Votes own{.have_values = data.values != nullptr && !is_given_up_ ? 1 : 0,
                  .have_communicator = has ? 1 : 0,
                  .can_keep_one = has || communicators_.size() < kMostCommunicators ? 1 : 0};
  std::memcpy(message_.data(), &own, sizeof own);
  exchange(runs, Stage::kMeeting, sizeof own / sizeof(std::int64_t));
}

bool CommunicatorRuns::finish(GroupRuns& runs) {
  if (stage_ == Stage::kMeeting && runs.finish()) conclude_meeting(runs);
  if (stage_ == Stage::kNaming && runs.finish()) join();
  if (stage_ == Stage::kJoining) {
    if (is_given_up_) {
      stage_ = Stage::kEnded;
    } else if (error_) {
      std::rethrow_exception(std::exchange(error_, nullptr));
    } else if (const auto found = communicators_.find(members_);
               found != communicators_.end() && found->second->is_settled()) {
      reduce(*found->second);
    }
  }
  if (stage_ == Stage::kReducing && reduction_.finish()) stage_ = Stage::kEnded;
  if (stage_ == Stage::kStaged && staged_.finish(runs)) stage_ = Stage::kEnded;
  return stage_ == Stage::kEnded;
}

/// The members add up so many words of `message_`.
void CommunicatorRuns::exchange(GroupRuns& runs, Stage stage, std::size_t words) {
  const GroupData data{reinterpret_cast<std::byte*>(message_.data()), words, DataType::kInt64, ReduceOp::kSum};
  stage_ = stage;
  runs.prepare(members_, data, kByMessages);
  runs.start(number_);
}

void CommunicatorRuns::conclude_meeting(GroupRuns& runs) {
  Votes votes{};
  std::memcpy(&votes, message_.data(), sizeof votes);
  const auto all = static_cast<std::int64_t>(members_.size());
  if (votes.have_values < all || votes.can_keep_one < all) {
    stage_ = Stage::kStaged;
    return staged_.start(runs, members_, data_, algorithm_, number_);
  }
  if (votes.have_communicator < all) return name(runs);
  ++hits_;
  stage_ = Stage::kJoining;  // long since
}

/// The first member names the communicator, which the others add nothing to; by nothing, if it cannot.
void CommunicatorRuns::name(GroupRuns& runs) {
  ++misses_;
  message_ = {};
  if (own_ == members_.front() && !is_given_up_) {
    try {
      const CommunicatorId id = library().new_id();
      std::memcpy(message_.data(), id.data(), id.size());
    } catch (const DeviceError&) {  // when the others have heard of it
      error_ = std::current_exception();
    }
  }
  exchange(runs, Stage::kNaming, message_.size());
}

/// Without a name the members wait until they are told what has failed.
void CommunicatorRuns::join() {
  stage_ = Stage::kJoining;
  if (is_given_up_ || message_ == Message{}) return;
  CommunicatorId id;
  std::memcpy(id.data(), message_.data(), id.size());
  const auto number = std::find(members_.begin(), members_.end(), own_) - members_.begin();
  communicators_[members_] = library().join(id, members_.size(), static_cast<std::size_t>(number));
}

/// Ranks have agreed that there is one.
CommunicatorLibrary& CommunicatorRuns::library() const {
  const CommunicatorFinding finding = executor_.communicators();
  if (finding.library == nullptr) throw DeviceError(finding.reason);
  return *finding.library;
}

void CommunicatorRuns::reduce(Communicator& communicator) {
  const Elements elements = data_.elements();
  std::byte* const sum = staged_.work() != nullptr ? staged_.work() : data_.values;
  stage_ = Stage::kReducing;
  reduction_.stream().load(elements, sum, data_.values, data_.count);
  const std::size_t divisor = data_.op == ReduceOp::kAvg ? members_.size() : 1;
  const auto store = [this, elements, sum, divisor](Stream& stream) {
    stream.store(elements, data_.values, sum, data_.count, divisor);
  };
  reduction_.start(communicator, sum, data_.count, elements.accumulator, data_.op, store);
}

}  // namespace pyc
