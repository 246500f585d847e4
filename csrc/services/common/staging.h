// Where data of devices is sent from and reduced: pinned memory of the host. Copies between it and the devices are
// queued, those to the host and those back on a stream each, and polled. No call waits for one.
//
// A device that fails is no exception here: what it was asked for is done, and `error` says why it is worth nothing. So
// the run goes on, and all who wait for its messages are told.
//
// Under the engine's progress lock.
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

inline constexpr std::size_t kPieceBytes = std::size_t{1} << 20U;  // of data that messages carry: copied at a time

class Staging final : public Copier {
 public:
  /// For `runs` of `bytes` each, of which one at a time copies, at most `copies` in each direction. Allocates all of
  /// it. `memory`: what understands addresses that ranks share; null if there are none. What is referred to outlives
  /// this.
  Staging(Executor& executor, const DeviceMemory* memory, std::size_t bytes, std::size_t runs, std::size_t copies);
  ~Staging() override { finish(); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// For the plan's `staging`, of a run.
  std::byte* of_run(std::size_t run) const { return memory_of_runs_[run].get(); }

  /// Further copies wait for the event, as it was last recorded.
  void follow(Event& event);
  void copy(OpId op, std::byte* to, const std::byte* from, std::size_t bytes) override;
  /// The op of a copy that is done, each once; nothing if there is none.
  std::optional<OpId> take_done();
  /// What the device has failed with; null: it has not.
  const std::exception_ptr& error() const { return error_; }
  /// When no further copy will come: whether all are done, also those whose event could not be recorded.
  bool has_stopped();
  /// At the end: waits for what is under way.
  void finish();

 private:
  struct Queued {
    OpId op{};
    bool is_queued = false;  // else the device refused it
    std::unique_ptr<Event> done;
  };
  /// One direction. `copies` is a ring, of which `count` from `first` on are under way.
  struct Lane {
    Lane(Executor& executor, std::size_t most);

    std::unique_ptr<Stream> stream;
    std::vector<Queued> copies;
    std::size_t first = 0;
    std::size_t count = 0;
  };

  /// Whether the device has not failed in it.
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
  bool is_marked_ = false;  // the first event of each lane is recorded after all copies
};

}  // namespace pyc
