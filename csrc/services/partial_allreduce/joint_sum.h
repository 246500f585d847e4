// The sum of a round into which ranks reduce their own arrays, without a copy of them.
//
// A rank that a started round awaits *joins* it: it reduces its array into the sum piece by piece, each piece under a
// word of its own, before its call returns. The ranks begin at different pieces. No rank waits for another one: pieces
// that others are at for long are left over, as a copy that counts as an input of the round (board_round.h).
//
// `Joined` is given under the board's mutex; `add` and `copy_left_over` need none.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/types.h"
#include "memory/memory.h"
#include "services/partial_allreduce/board_memory.h"
#include "services/partial_allreduce/board_shape.h"

namespace pyc {

class JointSum {
 public:
  /// Of the rank `own`.
  JointSum(BoardMemory& memory, const BoardShape& shape, Rank own);

  /// Ranks may join rounds on this board.
  bool on() const { return pieces_ > 0; }

  /// How a rank found the sum.
  struct Joined {
    std::byte* sum;
    std::uint64_t generation;  // of ranks that add at the same time, from 1
    bool is_filled;            // when the first of them joined
  };

  /// Reduces `count` elements into the sum. False if pieces are left over.
  bool add(const Joined& joined, ReductionMemory& memory, const std::byte* data);
  /// Copies them to where they are in `to`, a buffer.
  void copy_left_over(ReductionMemory& memory, std::byte* to, const std::byte* data) const;

  /// Of a buffer that `copy_left_over` wrote: whether the byte is in it.
  bool is_left_over(Rank local, std::size_t byte) const { return is_missing(local, byte / shape_.piece_bytes); }
  /// The first byte behind the piece that has this one.
  std::size_t end_of_piece(std::size_t byte) const { return (byte / shape_.piece_bytes + 1) * shape_.piece_bytes; }

 private:
  /// An empty piece has an earlier value than its generation's.
  using Word = std::atomic<std::uint64_t>;
  static constexpr std::uint64_t busy(std::uint64_t generation) { return 2 * generation + 1; }
  static constexpr std::uint64_t filled(std::uint64_t generation) { return 2 * generation + 2; }

  bool is_missing(Rank local, std::size_t piece) const {
    return ((missing_[row(local)][piece / 64] >> piece % 64) & 1) != 0;
  }
  bool try_add(const Joined& joined, ReductionMemory& memory, const std::byte* data, std::size_t piece);
  void reduce(ReductionMemory& memory, std::byte* into, const std::byte* from, std::size_t count) const;
  static std::size_t row(Rank local) { return static_cast<std::size_t>(local); }

  const BoardShape& shape_;
  const Rank own_;
  const std::size_t pieces_;
  SharedRows<Word> words_;             // by piece
  SharedRows<std::uint64_t> missing_;  // by local rank: bitmap of the pieces that it has not added
};

}  // namespace pyc
