// Where data of devices is sent from and reduced: pinned memory of the host. Copies between it and the devices are
// queued, those to the host and those back on a stream each, and polled. No call waits for one.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "memory/device_memory.h"
#include "memory/executor.h"
#include "services/common/device_copier.h"

namespace pyc {

inline constexpr std::size_t kPieceBytes = std::size_t{1} << 20U;  // of data that messages carry: copied at a time

class Staging final : public DeviceCopier {
 public:
  /// For `runs` of `bytes` each, of which one at a time copies, at most `copies` in each direction. Allocates all of
  /// it. `memory`: what understands addresses that ranks share; null if there are none. What is referred to outlives
  /// this.
  Staging(Executor& executor, const DeviceMemory* memory, std::size_t bytes, std::size_t runs, std::size_t copies);
  ~Staging() override { Staging::finish(); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  std::byte* of_run(std::size_t run) const override { return memory_of_runs_[run].get(); }

  /// Further copies wait for the event, as it was last recorded.
  void follow(Event& event);
  void copy(OpId op, std::byte* to, const std::byte* from, std::size_t bytes) override;
  std::optional<OpId> take_done() override;
  void give_up() override {}
  /// When no further copy will come: whether all are done, also those whose event could not be recorded.
  bool has_stopped();
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
  bool is_marked_ = false;  // the first event of each lane is recorded after all copies
};

}  // namespace pyc
