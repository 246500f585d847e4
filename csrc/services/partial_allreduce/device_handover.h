// A contribution on a device from the call on, until its values are there and the board gets them: the stream of the
// application that makes them may have much to do before.
//
// The values are copied to memory of this rank's own behind what makes them; who makes them goes on behind the copy. So
// the application may overwrite them at once, and nobody waits. When the copy is done, either the application, in its
// next call, or the engine's progress takes them to the board: whoever has *entered*.
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
  /// At most two: the stream that the application works on, and that of whoever made the array.
  using Producers = std::span<const std::unique_ptr<Stream>>;

  /// Of contributions of `bytes`. `executor` outlives it.
  DeviceHandover(Executor& executor, std::size_t bytes);
  /// If a copy is under way, leaves its memory to the driver, which frees it with the process.
  ~DeviceHandover();
  DeviceHandover(const DeviceHandover&) = delete;
  DeviceHandover& operator=(const DeviceHandover&) = delete;

  /// For as long as it lives, the other thread leaves what is below alone.
  class Turn {
   public:
    explicit Turn(DeviceHandover& handover);
    ~Turn() { handover_.entered_.clear(std::memory_order_release); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    DeviceHandover& handover_;
  };
  /// False if the other thread has entered.
  bool try_enter() { return !entered_.test_and_set(std::memory_order_acquire); }
  void leave() { entered_.clear(std::memory_order_release); }

  /// After what `producers` have been given so far. Only if none is open. std::invalid_argument, and nothing is copied,
  /// if one of them takes no work.
  void begin(std::shared_ptr<Call> call, const std::byte* values, Producers producers);
  /// Whether there is one that the board has not got; also for who has not entered.
  bool is_open() const { return open_.load(std::memory_order_acquire); }
  bool is_of(const Call& call) const { return is_open() && call_.get() == &call; }
  /// Whether its values are there.
  bool is_there() { return there_->reached(); }
  const std::byte* values() const { return values_.get(); }
  /// Ends it: who is told true takes its values to the board, or drops them; also for who has not entered.
  bool claim() { return open_.exchange(false, std::memory_order_acq_rel); }
  /// For who was told true.
  const std::shared_ptr<Call>& call() const { return call_; }

  /// What went wrong: all later calls throw it.
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
  std::array<std::unique_ptr<Event>, 2> called_;  // by producer
  std::unique_ptr<Event> there_;
  std::atomic_flag entered_;
  std::atomic<bool> open_{false};
  std::shared_ptr<Call> call_;
  std::exception_ptr error_;
};

}  // namespace pyc
