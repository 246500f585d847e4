#include "services/partial_reduce/group_device.h"

#include <utility>

#include "core/checked.h"

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

}  // namespace pyc
