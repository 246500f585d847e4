// Copies results of a collective on a device to the application's memory: after the earlier work of the application's
// stream and before its later work. The caller of the collective owns this object and makes one call at a time.
#pragma once

#include <cstddef>
#include <memory>

#include "memory/executor.h"

namespace pyc {

class DeviceCaller {
 public:
  DeviceCaller(Executor& executor, std::size_t bytes);
  ~DeviceCaller();
  DeviceCaller(const DeviceCaller&) = delete;
  DeviceCaller& operator=(const DeviceCaller&) = delete;

  /// Starts a copy of `value` to `out` and keeps `value` until it is done; the previous copy must be done. If
  /// `consumer` is null, poll `is_given`. Throws std::invalid_argument and copies nothing if the stream takes no work.
  void give(std::shared_ptr<const std::byte> value, std::byte* out, Stream* consumer);
  bool is_given();
  /// Waits a few seconds for the pending copy, because the consumer's stream may hang. Returns false if it is not done;
  /// its destination must then never be freed. No call may follow.
  bool finish();

 private:
  void abandon();

  const std::size_t bytes_;
  std::shared_ptr<const std::byte> giving_;
  std::unique_ptr<Stream> out_;
  std::unique_ptr<Event> called_;
  std::unique_ptr<Event> given_;
};

}  // namespace pyc
