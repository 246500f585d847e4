#include "services/common/device_reduction.h"

#include <thread>
#include <utility>

namespace pyc {

DeviceReduction::~DeviceReduction() {
  give_up();
  while (!finish()) std::this_thread::yield();
}

void DeviceReduction::start(Communicator& communicator, std::byte* data, std::size_t count, DataType type, ReduceOp op,
                            Then then) {
  communicator_ = &communicator;
  then_ = std::move(then);
  stage_ = Stage::kQueueing;
  communicator.allreduce(*stream_, data, count, type, op);
}

bool DeviceReduction::finish() {
  try {
    return advance();
  } catch (const DeviceError&) {  // a device that fails does nothing any more
    if (communicator_ != nullptr) throw;
    stage_ = Stage::kIdle;
    return true;
  }
}

bool DeviceReduction::advance() {
  if (stage_ == Stage::kQueueing) {
    if (communicator_ != nullptr && !communicator_->is_settled()) return false;
    if (communicator_ != nullptr && then_) then_(*stream_);
    stream_->record(*done_);
    stage_ = Stage::kRunning;
  }
  if (stage_ == Stage::kRunning && !done_->reached()) {
    if (communicator_ != nullptr) communicator_->is_settled();  // throws what it has found, while its work may wait
    return false;
  }
  stage_ = Stage::kIdle;
  return true;
}

}  // namespace pyc
