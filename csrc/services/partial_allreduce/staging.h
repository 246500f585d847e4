// Where a node's part of a round whose data is on devices is sent from and reduced: pinned memory of the host. Copies
// between it and the node's devices are queued, those to the host and those back on a stream each, and polled. No call
// waits for one.
//
// A device that fails is no exception here: its copies are done, and `error` says why they are worth nothing. So the
// round goes on, and all who wait for its messages are told.
//
// Owned by a PartialAllreduce, the leader's; under the engine's progress lock.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "engine/run.h"
#include "memory/device_memory.h"
#include "memory/executor.h"

namespace pyc {

class Staging final : public Copier {
 public:
  /// For `runs` of `bytes` each, of which one at a time copies, at most `copies` in each direction. Allocates all of
  /// it. What is referred to outlives this.
  Staging(Executor& executor, const DeviceMemory& memory, std::size_t bytes, std::size_t runs, std::size_t copies);
  ~Staging() override { finish(); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  std::byte* of_run(std::size_t run) const { return memory_of_runs_[run].get(); }

  void copy(OpId op, std::byte* to, const std::byte* from, std::size_t bytes) override;
  /// The op of a copy that is done, each once; nothing if none is.
  std::optional<OpId> take_done();
  /// What the device has failed with; null: it has not.
  const std::exception_ptr& error() const { return error_; }
  /// At the end: waits for what is under way, also if its event could not be recorded.
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

  bool is_done(const Queued& copy);
  std::optional<OpId> take_done(Lane& lane);
  template <class Action>
  bool attempt(Action action);

  const DeviceMemory& memory_;
  std::vector<ExecutorMemory> memory_of_runs_;
  Lane to_host_;
  Lane to_device_;
  std::exception_ptr error_;
  bool is_finished_ = false;
};

}  // namespace pyc
