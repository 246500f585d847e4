#include "services/common/device_caller.h"

#include <chrono>
#include <thread>
#include <utility>

namespace pyc {
namespace {

constexpr auto kPatience = std::chrono::seconds(2);

}  // namespace

DeviceCaller::DeviceCaller(Executor& executor, std::size_t bytes)
    : bytes_(bytes), out_(executor.new_stream()), called_(executor.new_event()), given_(executor.new_event()) {}

DeviceCaller::~DeviceCaller() { finish(); }

bool DeviceCaller::finish() {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  try {
    while (!is_given()) {
      if (std::chrono::steady_clock::now() > until) return abandon(), false;
      std::this_thread::yield();
    }
  } catch (const DeviceError&) {  // NOLINT(bugprone-empty-catch): a device that fails does nothing any more
  }
  return true;
}

/// Leaks the operands of a copy that may still run.
void DeviceCaller::abandon() {
  struct Left {
    std::shared_ptr<const std::byte> giving;
    std::unique_ptr<Stream> out;
    std::unique_ptr<Event> called;
    std::unique_ptr<Event> given;
  };
  static_cast<void>(new Left{std::move(giving_), std::move(out_), std::move(called_), std::move(given_)});
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): that is what it is for

void DeviceCaller::give(std::shared_ptr<const std::byte> value, std::byte* out, Stream* consumer) {
  if (consumer != nullptr) {
    consumer->record(*called_);
    out_->wait(*called_);
  }
  giving_ = std::move(value);
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
