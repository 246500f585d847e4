#include "services/partial_allreduce/device_handover.h"

#include <thread>
#include <utility>

namespace pyc {

DeviceHandover::DeviceHandover(Executor& executor, std::size_t bytes)
    : bytes_(bytes),
      values_(executor.allocate(bytes)),
      stream_(executor.new_stream()),
      called_{executor.new_event(), executor.new_event()},
      there_(executor.new_event()) {}

DeviceHandover::~DeviceHandover() {
  try {
    if (!there_->reached()) static_cast<void>(values_.release());
  } catch (const DeviceError&) {  // NOLINT(bugprone-empty-catch): a device that fails does nothing any more
  }
}

DeviceHandover::Turn::Turn(DeviceHandover& handover) : handover_(handover) {
  while (!handover_.try_enter()) std::this_thread::yield();  // the other thread takes values to the board
}

void DeviceHandover::begin(std::shared_ptr<Call> call, const std::byte* values, Producers producers) {
  for (std::size_t i = 0; i < producers.size(); ++i) producers[i]->record(*called_.at(i));
  for (std::size_t i = 0; i < producers.size(); ++i) stream_->wait(*called_.at(i));
  stream_->copy(values_.get(), values, bytes_);
  stream_->record(*there_);
  for (const std::unique_ptr<Stream>& producer : producers) producer->wait(*there_);
  call_ = std::move(call);
  open_.store(true, std::memory_order_release);
}

}  // namespace pyc
