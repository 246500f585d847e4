// Pinned host memory, from which data of a device is sent and in which it is reduced. Copies are queued on one stream
// per direction, and polled; only `finish` waits.
//
// A device error is not thrown: the copy counts as done, and `error` has the error. The run can therefore continue, and
// all ranks that wait for its messages learn of the error. Under the engine's progress lock.
#pragma once

#include <array>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "engine/run.h"
#include "memory/device_memory.h"
#include "memory/executor.h"

namespace pyc {

inline constexpr std::size_t kPieceBytes = std::size_t{1} << 20U;  // copied at a time, of data in messages

class Staging final : public Copier {
 public:
  /// For `runs` runs of `bytes` each. One run copies at a time, at most `copies` in each direction. Allocates all
  /// memory. `memory` translates addresses that ranks share, or is null. The arguments outlive this object.
  Staging(Executor& executor, const DeviceMemory* memory, std::size_t bytes, std::size_t runs, std::size_t copies);
  ~Staging() override { finish(); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Memory for the buffer `staging` of a run's plan.
  std::byte* of_run(std::size_t run) const { return memory_of_runs_[run].get(); }

  /// Later copies wait for the event, as it was last recorded.
  void follow(Event& event);
  void copy(OpId op, std::byte* to, const std::byte* from, std::size_t bytes) override;
  /// The op of a copy that is done, each once.
  std::optional<OpId> take_done();
  /// The device's first error, or null.
  const std::exception_ptr& error() const { return error_; }
  /// Whether all copies are done, including copies whose event could not be recorded. No copy may follow.
  bool has_stopped();
  /// Waits until `has_stopped()`.
  void finish();

 private:
  struct Queued {
    OpId op{};
    bool is_queued = false;  // false: the device refused it
    std::unique_ptr<Event> done;
  };
  /// One direction. `copies` is a ring with `count` pending copies from `first` on.
  struct Lane {
    Lane(Executor& executor, std::size_t most);

    std::unique_ptr<Stream> stream;
    std::vector<Queued> copies;
    std::size_t first = 0;
    std::size_t count = 0;
  };

  /// Returns whether `action` succeeded, and keeps the first DeviceError.
  template <class Action>
  bool attempt(Action action) {
    try {
      action();
      return true;
    } catch (const DeviceError&) {
      if (!error_) error_ = std::current_exception();
      return false;
    }
  }
  std::array<Lane*, 2> lanes() { return {&to_host_, &to_device_}; }
  bool is_of_host(const std::byte* address) const;
  std::byte* at(const std::byte* address) const;
  bool is_done(const Queued& copy);
  std::optional<OpId> take_done(Lane& lane);

  const DeviceMemory* const memory_;
  const std::size_t bytes_;
  std::vector<ExecutorMemory> memory_of_runs_;
  Lane to_host_;
  Lane to_device_;
  std::exception_ptr error_;
  bool is_marked_ = false;  // the first event of each lane has been recorded after all copies
};

}  // namespace pyc
