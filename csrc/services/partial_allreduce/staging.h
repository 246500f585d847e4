// Where a node's part of a round whose data is on devices is sent from and reduced: pinned memory of the host. Copies
// between it and the node's devices are queued, those to the host and those back on a stream each, and polled. No call
// waits for one.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "memory/device_memory.h"
#include "memory/executor.h"
#include "services/partial_allreduce/device_copier.h"

namespace pyc {

class Staging final : public DeviceCopier {
 public:
  /// For `runs` of `bytes` each, of which one at a time copies, at most `copies` in each direction. Allocates all of
  /// it. What is referred to outlives this.
  Staging(Executor& executor, const DeviceMemory& memory, std::size_t bytes, std::size_t runs, std::size_t copies);
  ~Staging() override { Staging::finish(); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  std::byte* of_run(std::size_t run) const override { return memory_of_runs_[run].get(); }

  void copy(OpId op, std::byte* to, const std::byte* from, std::size_t bytes) override;
  std::optional<OpId> take_done() override;
  void give_up() override {}
  /// Also if the event of a copy could not be recorded.
  void finish() override;

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

  const DeviceMemory& memory_;
  std::vector<ExecutorMemory> memory_of_runs_;
  Lane to_host_;
  Lane to_device_;
  bool is_finished_ = false;
};

}  // namespace pyc
