// Slots of a node's ranks for values and partial results, one per rank, in host memory (host_slots.h) or device memory
// (device_slots.h). A call does its work, or queues it in the order of calls; `is_done` returns whether all is done.
// The group board (group_board.h) announces only finished work, so it serves both.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "memory/group_data.h"

namespace pyc {

class GroupSlots {
 public:
  virtual ~GroupSlots() = default;

  /// Memory behind the head of a rank (group_board.h), this one or another.
  virtual void attach(std::size_t local, std::byte* behind_head) = 0;

  /// Elements of `data` that fit in a slot.
  virtual std::size_t longest_piece(const GroupData& data) const = 0;

  /// Puts the values of `piece`, weighted if they have a weight, into this rank's slot.
  virtual void put(const GroupData& piece) = 0;
  /// Reduces elements [first, first + length) of the slots of `members`, at least one, in that order, into the slot of
  /// `into`. An average is divided by their number, or multiplied by `factor` if weighted.
  virtual void reduce(const GroupData& piece, const std::vector<std::size_t>& members, std::optional<double> factor,
                      std::size_t into, std::size_t first, std::size_t length) = 0;
  /// Copies the slot of `from` to the values of `piece`.
  virtual void take(const GroupData& piece, std::size_t from) = 0;

  virtual bool is_done() = 0;
};

}  // namespace pyc
