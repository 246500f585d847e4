// The sum of a round, into which ranks that the round awaits reduce their own arrays piece by piece, without a deposit:
// see "Joining a round" in docs/board.md. A word per piece locks it. If other ranks stay busy on some pieces, a rank
// leaves a copy of these pieces as an input of the round (board_round.h) and does not wait.
//
// A `Joined` is made under the board's mutex; `add` and `copy_left_over` do not need it.
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
  JointSum(BoardMemory& memory, const BoardShape& shape, Rank own);

  bool on() const { return pieces_ > 0; }

  /// The state of the sum when a rank joins.
  struct Joined {
    std::byte* sum;
    std::uint64_t generation;  // of ranks that add at the same time, from 1
    bool is_filled;            // the sum had data when the first of them joined
  };

  /// Reduces this rank's array into the sum. False if pieces are left over.
  bool add(const Joined& joined, ReductionMemory& memory, const std::byte* data);
  /// Copies the left-over pieces to their places in the buffer `to`.
  void copy_left_over(ReductionMemory& memory, std::byte* to, const std::byte* data) const;

  /// Whether the buffer that `copy_left_over` wrote contains this byte.
  bool is_left_over(Rank local, std::size_t byte) const { return is_missing(local, byte / shape_.piece_bytes); }
  std::size_t end_of_piece(std::size_t byte) const { return (byte / shape_.piece_bytes + 1) * shape_.piece_bytes; }

 private:
  /// A piece is empty if its word is from an earlier generation.
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
  SharedRows<Word> words_;
  SharedRows<std::uint64_t> missing_;  // by local rank: bitmap of pieces that the rank has not added
};

}  // namespace pyc
