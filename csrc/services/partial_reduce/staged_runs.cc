#include "services/partial_reduce/staged_runs.h"

#include <utility>

namespace pyc {
namespace {

std::size_t bytes_of(const GroupData& data) { return data.count * size_of(data.type); }

}  // namespace

StagedRuns::StagedRuns(Executor& executor, std::size_t bytes)
    : staging_(executor.allocate_staging(bytes)), stream_(executor.new_stream()), done_(executor.new_event()) {}

StagedRuns::~StagedRuns() { finish_at_end(*stream_, *done_); }

void StagedRuns::start(GroupRuns& runs, std::span<const Rank> members, const GroupData& data,
                       const std::string& algorithm, std::uint64_t number) {
  members_.assign(members.begin(), members.end());
  data_ = data;
  algorithm_ = algorithm;
  number_ = number;
  if (data.values == nullptr || !has_device_) return run(runs);
  stage_ = Stage::kFetching;
  copy(staging_.get(), data.values, bytes_of(data));
}

bool StagedRuns::finish(GroupRuns& runs) {
  if (stage_ == Stage::kFetching) {
    if (has_device_ && !done_->reached()) return false;
    run(runs);
  }
  if (stage_ == Stage::kRunning) {
    if (!runs.finish()) return false;
    stage_ = data_.values == nullptr ? Stage::kEnded : Stage::kPutting;
    if (stage_ == Stage::kPutting && has_device_) copy(data_.values, staging_.get(), bytes_of(data_));
  }
  if (stage_ == Stage::kPutting && has_device_ && !done_->reached()) return false;
  if (!has_device_ && !has_stopped()) return false;
  stage_ = Stage::kEnded;
  return true;
}

void StagedRuns::run(GroupRuns& runs) {
  GroupData staged = data_;
  staged.values = data_.values != nullptr && has_device_ ? staging_.get() : nullptr;
  stage_ = Stage::kRunning;
  runs.prepare(members_, staged, algorithm_);
  runs.start(number_);
}

/// After an error: whether what was queued before it is done, though nobody recorded it.
bool StagedRuns::has_stopped() {
  try {
    if (!std::exchange(is_marked_, true)) stream_->record(*done_);
    return done_->reached();
  } catch (const DeviceError&) {  // a device that fails does nothing any more
    return true;
  }
}

void StagedRuns::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  stream_->copy(to, from, bytes);
  stream_->record(*done_);
}

}  // namespace pyc
