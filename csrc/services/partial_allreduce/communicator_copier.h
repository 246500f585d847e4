// Rounds whose data the devices of all ranks reduce among each other, by a library of their vendor. Each rank is a
// node, and its own leader. The run exchanges who contributes, without data: so every rank has come, and the round goes
// on, before any device waits for another one. Then the devices reduce, in place. Rounds follow each other, so all
// ranks ask for the same reductions in the same order.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "memory/device_memory.h"
#include "memory/executor.h"
#include "services/common/device_copier.h"
#include "services/common/device_reduction.h"

namespace pyc {

class CommunicatorCopier final : public DeviceCopier {
 public:
  struct Data {
    Elements elements;
    ReduceOp op;
    std::size_t count;
  };

  /// What is referred to outlives this. Makes all that it needs on the device.
  CommunicatorCopier(Executor& executor, DeviceMemory& memory, Data data)
      : memory_(memory), data_(data), reduction_(executor) {}
  /// Before the first round: that of all ranks.
  void use(std::unique_ptr<Communicator> communicator) { communicator_ = std::move(communicator); }
  ~CommunicatorCopier() override { CommunicatorCopier::finish(); }
  CommunicatorCopier(const CommunicatorCopier&) = delete;
  CommunicatorCopier& operator=(const CommunicatorCopier&) = delete;

  /// Messages carry no data.
  std::byte* of_run(std::size_t /*run*/) const override { return nullptr; }
  /// From the device, of a rank that contributes: nothing is to be done. To the device: the reduction, there.
  void copy(OpId op, std::byte* to, const std::byte* from, std::size_t bytes) override;
  std::optional<OpId> take_done() override;
  void give_up() override;
  void finish() override;

 private:
  bool is_done();

  DeviceMemory& memory_;
  const Data data_;
  DeviceReduction reduction_;
  std::unique_ptr<Communicator> communicator_;  // null at the end: given up
  bool contributes_ = false;                    // ... this rank to the round
  std::optional<OpId> under_way_;
};

}  // namespace pyc
