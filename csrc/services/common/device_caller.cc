#include "services/common/device_caller.h"

#include <thread>
#include <utility>

namespace pyc {

DeviceCaller::DeviceCaller(Executor& executor, std::size_t bytes)
    : bytes_(bytes), out_(executor.new_stream()), called_(executor.new_event()), given_(executor.new_event()) {}

DeviceCaller::~DeviceCaller() {
  try {
    while (!is_given()) std::this_thread::yield();
  } catch (const DeviceError&) {  // NOLINT(bugprone-empty-catch): a device that fails does nothing any more
  }
}

void DeviceCaller::give(std::shared_ptr<const std::byte> value, std::byte* out, Stream* consumer) {
  giving_ = std::move(value);
  if (consumer != nullptr) {
    consumer->record(*called_);
    out_->wait(*called_);
  }
  out_->copy(out, giving_.get(), bytes_);
  out_->record(*given_);
  if (consumer != nullptr) consumer->wait(*given_);
}

bool DeviceCaller::is_given() {
  if (!giving_) return true;
  if (!given_->reached()) return false;
  giving_.reset();
  return true;
}

}  // namespace pyc
