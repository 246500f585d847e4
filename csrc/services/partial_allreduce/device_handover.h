// A contribution on a device, from the call until its values are ready and the board receives them. A copy is queued
// after the work that produces the values, and the producing streams wait for it, so the application may overwrite the
// values at once. When the copy is done, the application's next call or the engine's progress takes the values to the
// board: the thread that has *entered*.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <span>

#include "memory/executor.h"
#include "services/partial_allreduce/round.h"

namespace pyc {

class DeviceHandover {
 public:
  /// At most two: the stream that the application works on, and the stream that produces the array.
  using Producers = std::span<const std::unique_ptr<Stream>>;

  DeviceHandover(Executor& executor, std::size_t bytes);
  /// If a copy is under way, the driver frees its memory with the process.
  ~DeviceHandover();
  DeviceHandover(const DeviceHandover&) = delete;
  DeviceHandover& operator=(const DeviceHandover&) = delete;

  /// Enters, and leaves when it is destroyed. Only one thread at a time can have entered.
  class Turn {
   public:
    explicit Turn(DeviceHandover& handover);
    ~Turn() { handover_.entered_.clear(std::memory_order_release); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    DeviceHandover& handover_;
  };
  bool try_enter() { return !entered_.test_and_set(std::memory_order_acquire); }
  void leave() { entered_.clear(std::memory_order_release); }

  /// Queues the copy after the present work of `producers`. Only if no contribution is open. If a producer accepts no
  /// work, throws std::invalid_argument and copies nothing.
  void begin(std::shared_ptr<Call> call, const std::byte* values, Producers producers);
  /// Whether a contribution has not reached the board. Any thread may call this.
  bool is_open() const { return open_.load(std::memory_order_acquire); }
  bool is_of(const Call& call) const { return is_open() && call_.get() == &call; }
  bool is_there() { return there_->reached(); }
  const std::byte* values() const { return values_.get(); }
  /// A thread that gets true takes the values to the board or drops them. Any thread may call this.
  bool claim() { return open_.exchange(false, std::memory_order_acq_rel); }
  const std::shared_ptr<Call>& call() const { return call_; }

  /// Records an error, which all later calls throw.
  void fail(std::exception_ptr error) {
    error_ = std::move(error);
    claim();
  }
  void throw_failure() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  const std::size_t bytes_;
  ExecutorMemory values_;
  std::unique_ptr<Stream> stream_;
  std::array<std::unique_ptr<Event>, 2> called_;
  std::unique_ptr<Event> there_;
  std::atomic_flag entered_;
  std::atomic<bool> open_{false};
  std::shared_ptr<Call> call_;
  std::exception_ptr error_;
};

}  // namespace pyc
