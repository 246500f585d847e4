// Slots in host memory. All work is done when a call returns.
#pragma once

#include <vector>

#include "memory/memory.h"
#include "services/partial_reduce/group_slots.h"

namespace pyc {

class HostSlots final : public GroupSlots {
 public:
  /// `slot_bytes` is the same on all `ranks`, and enough for an element.
  HostSlots(Memory& memory, std::size_t ranks, std::size_t local, std::size_t slot_bytes)
      : memory_(memory), local_(local), slot_bytes_(slot_bytes), slots_(ranks) {}

  void attach(std::size_t local, std::byte* behind_head) override { slots_[local] = behind_head; }
  std::size_t longest_piece(const GroupData& data) const override;
  void put(const GroupData& piece) override;
  void reduce(const GroupData& piece, const std::vector<std::size_t>& members, std::optional<double> factor,
              std::size_t into, std::size_t first, std::size_t length) override;
  void take(const GroupData& piece, std::size_t from) override;
  bool is_done() override { return true; }

 private:
  void add(const GroupData& piece, const std::vector<std::size_t>& members, std::optional<double> factor,
           std::size_t into, std::size_t first, std::size_t length) const;

  Memory& memory_;
  const std::size_t local_;
  const std::size_t slot_bytes_;
  std::vector<std::byte*> slots_;  // by local rank
};

}  // namespace pyc
