#include "services/partial_reduce/group_device.h"

#include <utility>

#include "core/checked.h"
#include "core/error.h"

namespace pyc {

GroupDevice::GroupDevice(std::shared_ptr<Executor> executor, const GroupData& most, bool sends, std::size_t piece_bytes)
    : executor_(std::move(executor)),
      bytes_(checked_product(most.count, size_of(most.type))),
      final_(executor_->allocate(bytes_)),
      stream_(executor_->new_stream()),
      kept_(executor_->new_event()),
      runs_(sends ? std::make_unique<StagedRuns>(*executor_, StagedRuns::room_for(most), piece_bytes) : nullptr) {}

void GroupDevice::keep(const std::byte* values) {
  stream_->copy(final_.get(), values, bytes_);
  pyc::finish(*stream_, *kept_);
}

void GroupDevice::use_communicators(Rank own) {
  if (!runs_ || slots_ != nullptr) throw InternalError("ranks that NCCL joins share nodes");
  communicators_ = std::make_unique<CommunicatorRuns>(*executor_, *runs_, own);
}

void GroupDevice::start(GroupRuns& runs, std::span<const Rank> members, const GroupData& data,
                        const std::string& algorithm, std::uint64_t number) {
  if (communicators_) return communicators_->start(runs, members, data, algorithm, number);
  runs_->start(runs, members, data, algorithm, number);
}

void GroupDevice::give_up() {
  if (runs_) runs_->give_up_device();
  wait_for_nobody();
}

void GroupDevice::wait_for_nobody() {
  if (communicators_) communicators_->give_up();
}

}  // namespace pyc
