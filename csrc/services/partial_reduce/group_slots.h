// Where the members of a group on one node put their values, and what is computed there: memory of the host that they
// share (host_slots.h), or memory of their devices (device_slots.h). A rank has one slot, which holds partial results.
//
// A call does its work, or queues it in the order of calls; `is_done` says whether all of that is done. What the group
// board (group_board.h) is told is hence true, whatever memory it is.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "memory/group_data.h"

namespace pyc {

class GroupSlots {
 public:
  virtual ~GroupSlots() = default;

  /// What lies behind the head of a rank (group_board.h), this one or another.
  virtual void attach(std::size_t local, std::byte* behind_head) = 0;

  /// Elements of such values that a slot holds.
  virtual std::size_t longest_piece(const GroupData& data) const = 0;

  /// Puts the values of `piece`, weighted if they are, into the own slot.
  virtual void put(const GroupData& piece) = 0;
  /// Reduces elements [first, first + length) of what `members` have put, at least one, in that order, into the slot of
  /// `into`; an average is divided by their number, or, if it is weighted, multiplied by `factor`.
  virtual void reduce(const GroupData& piece, const std::vector<std::size_t>& members, std::optional<double> factor,
                      std::size_t into, std::size_t first, std::size_t length) = 0;
  /// Takes the values of `piece` out of the slot of `from`.
  virtual void take(const GroupData& piece, std::size_t from) = 0;

  virtual bool is_done() = 0;
};

}  // namespace pyc
