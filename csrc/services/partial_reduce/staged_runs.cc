#include "services/partial_reduce/staged_runs.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "algorithms/staged_allreduce.h"
#include "core/checked.h"

namespace pyc {
namespace {

std::size_t width_of(const GroupData& data) { return size_of(data.elements().accumulator); }
bool needs_work(const GroupData& data) { return data.weight || data.elements().widened(); }

}  // namespace

StagedRuns::Room StagedRuns::room_for(const GroupData& data) {
  const std::size_t bytes = checked_product(std::max<std::size_t>(data.length(), 1), width_of(data));
  return {.staging = bytes, .work = needs_work(data) ? bytes : 0};
}

StagedRuns::StagedRuns(Executor& executor, const Room& room, std::size_t piece_bytes)
    : piece_bytes_(piece_bytes),
      room_(room),
      work_(room.work > 0 ? executor.allocate(room.work) : ExecutorMemory()),
      stream_(executor.new_stream()),
      done_(executor.new_event()),
      staging_(executor, nullptr, room.staging, 1, std::min(most_pieces(room.staging, piece_bytes), kMostPieces + 1)) {}

StagedRuns::~StagedRuns() { finish_at_end(*stream_, *done_); }

std::size_t StagedRuns::piece_of(const GroupData& data, std::size_t piece_bytes) {
  return std::max<std::size_t>({piece_bytes / width_of(data), (data.length() + kMostPieces - 1) / kMostPieces, 1});
}

void StagedRuns::start(GroupRuns& runs, std::span<const Rank> members, const GroupData& data,
                       const std::string& algorithm, std::uint64_t number) {
  members_.assign(members.begin(), members.end());
  data_ = data;
  algorithm_ = algorithm;
  number_ = number;
  stage_ = Stage::kLoading;
  if (takes_part() && needs_work(data_)) load();
  run(runs);
}

/// Accumulators of this rank, then of the group.
std::byte* StagedRuns::sum() const { return needs_work(data_) ? work_.get() : data_.values; }

/// Copies to the host follow it.
void StagedRuns::load() {
  load_values(*stream_, data_, work_.get());
  if (data_.weight) {
    const std::size_t behind = data_.count * width_of(data_);
    write_weight(data_, staging_.of_run(0));
    stream_->copy(work_.get() + behind, staging_.of_run(0) + behind, width_of(data_));
  }
  stream_->record(*done_);
  staging_.follow(*done_);
}

void StagedRuns::run(GroupRuns& runs) {
  GroupData staged = data_;
  staged.values = takes_part() ? sum() : nullptr;
  stage_ = Stage::kRunning;
  runs.prepare(members_, staged, algorithm_, piece_of(data_, piece_bytes_));
  runs.start(number_);
}

bool StagedRuns::finish(GroupRuns& runs) {
  if (stage_ == Stage::kLoading) run(runs);  // the device failed while it loaded
  if (stage_ == Stage::kRunning) {
    follow_copies(runs);
    if (!runs.finish()) return false;
    stage_ = Stage::kStoring;
    if (takes_part() && !runs.failed()) store(runs);
  }
  if (!(has_device_ ? done_->reached() : has_stopped())) return false;
  stage_ = Stage::kEnded;
  return true;
}

void StagedRuns::follow_copies(GroupRuns& runs) {
  while (const std::optional<OpId> done = staging_.take_done()) {
    if (staging_.error()) runs.fail();
    runs.on_copied(*done);
    moved_ = true;
  }
  if (staging_.error() && has_device_) std::rethrow_exception(staging_.error());
}

void StagedRuns::store(const GroupRuns& runs) {
  if (data_.weight) {
    scale(*stream_, data_.elements().accumulator, work_.get(), 1 / total_weight(data_, staging_.of_run(0)),
          data_.count);
  }
  store_values(*stream_, data_, sum(), runs.contributors());
  stream_->record(*done_);
}

/// After an error: whether the work before it is done, for which no event was recorded.
bool StagedRuns::has_stopped() {
  if (!staging_.has_stopped()) return false;
  try {
    if (!std::exchange(is_marked_, true)) stream_->record(*done_);
    return done_->reached();
  } catch (const DeviceError&) {  // a failed device does nothing more
    return true;
  }
}

}  // namespace pyc
