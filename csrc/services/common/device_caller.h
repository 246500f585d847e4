// Between a collective on a device and the streams of its application.
//
// A result is copied to where the application reads it: after what its stream has queued before, and before what it
// queues afterwards. No call waits, but the end. Owned by who calls the collective, one call at a time.
#pragma once

#include <cstddef>
#include <memory>

#include "memory/executor.h"

namespace pyc {

class DeviceCaller {
 public:
  /// For results of `bytes`.
  DeviceCaller(Executor& executor, std::size_t bytes);
  /// As `finish`.
  ~DeviceCaller();
  DeviceCaller(const DeviceCaller&) = delete;
  DeviceCaller& operator=(const DeviceCaller&) = delete;

  /// Copies `value`, which is held until that is done, to `out`; again only when `is_given`. Without a stream of the
  /// consumer the copy is not ordered: ask `is_given`. std::invalid_argument, and nothing is copied, if the stream
  /// takes no work.
  void give(std::shared_ptr<const std::byte> value, std::byte* out, Stream* consumer);
  bool is_given();
  /// Waits for the copy that is under way, for some seconds: the consumer's stream may hang. Whether it is done; if
  /// not, nobody may free where it is copied to. Ends this object.
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
