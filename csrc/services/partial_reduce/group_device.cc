#include "services/partial_reduce/group_device.h"

#include <thread>
#include <utility>

namespace pyc {

GroupDevice::GroupDevice(std::shared_ptr<Executor> executor, std::size_t bytes, bool sends)
    : executor_(std::move(executor)),
      bytes_(bytes),
      final_(executor_->allocate(bytes)),
      stream_(executor_->new_stream()),
      kept_(executor_->new_event()),
      runs_(sends ? std::make_unique<StagedRuns>(*executor_, bytes) : nullptr) {}

void GroupDevice::keep(const std::byte* values) {
  stream_->copy(final_.get(), values, bytes_);
  stream_->record(*kept_);
  while (!kept_->reached()) std::this_thread::yield();
}

void GroupDevice::give_up() {
  if (runs_) runs_->give_up_device();
}

}  // namespace pyc
