// The results of one rank: the newest or, under missed="sum", the sum of all that its application has not received.
//
// `collect`, in the critical section that ends a call, chooses the rounds and takes references to their buffers.
// `publish` makes one result of them: a single buffer is read in place on the board, other results are computed.
//
// Owned by a PartialAllreduce. Only the application's calls use it, one thread at a time, so its own state has no lock.
// Records, totals and reference counts belong to the board and need its mutex. Buffers are read without the mutex, with
// a reference. Any thread may release a result: see leases.h.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "core/relaxed.h"
#include "memory/pool.h"
#include "services/partial_allreduce/board.h"
#include "services/partial_allreduce/leases.h"
#include "services/partial_allreduce/round.h"

namespace pyc {

class Results {
 public:
  /// A call that has missed more than `history` rounds is an overrun.
  Results(ReductionMemory& memory, std::shared_ptr<Board> board, std::size_t history);

  /// The buffers for one call, with a reference to each until they are summed or released.
  class Given {
   private:
    friend class Results;
    struct Term {
      BufferNumber buffer;
      std::size_t divisor;
    };
    bool is_single() const { return one_.buffer != kNoBuffer && others_.empty(); }
    void add(Term term);
    template <class Action>
    void for_each(Action action);

    Term one_{kNoBuffer, 1};
    std::vector<Term> others_;
    bool nothing_new_ = false;
  };

  void reserve(std::size_t buffers);

  /// Makes the result of accumulators that are not on the board; null: the identity. Without the mutex.
  void set_result(const std::byte* values, std::size_t divisor);
  /// The next result replaces or contains the result of `rounds` earlier rounds, which it counts as missed.
  void add_pending(std::uint64_t rounds) { pending_rounds_ += rounds; }
  std::uint64_t pending_rounds() const { return pending_rounds_; }

  // ---- under the board's mutex

  void describe(Call& call, const RoundView& view) const;
  /// Collects every round up to the call's that the application has not received. The call is then done.
  Given collect(Call& call);
  /// The sum of pending rounds, if no call has received it.
  Given take_pending();
  /// Puts a direct round on the board that is complete and that this rank has not received. The call is then done.
  void keep(Call& call);
  /// Makes the result from the collected buffers. Releases the lock.
  void publish(Given given, std::unique_lock<BoardMutex>& lock);

  // ---- without it

  /// The application has received the rounds before this one.
  RoundNumber given() const { return given_; }
  std::size_t memory_bytes() const { return pool_->memory_bytes(); }
  /// Makes the result of a complete direct round. The application must have received all rounds before it.
  void give_directly(Call& call);
  /// Not written again while referenced; null before the first result.
  std::shared_ptr<const std::byte> newest();
  /// Without allocation or lock; false before the first result.
  bool read(std::byte* to) const;

 private:
  /// Made on demand: a direct round has no record on the board.
  struct DirectRecord {
    RoundRecord record;
    RoundShare share;
  };

  void compute(Given& given);
  BufferRef narrowed(BufferRef value, const std::byte* source, std::size_t divisor);
  void take_back();
  DirectRecord record_of(const Call& call) const;
  std::size_t divisor() const;
  void fold(RoundNumber round, std::byte* into);

  ReductionMemory& memory_;
  const std::size_t history_;
  const std::shared_ptr<Board> board_;
  const std::shared_ptr<Leases> leases_;
  const std::shared_ptr<BufferPool> pool_;  // for results computed for this rank only
  Relaxed<RoundNumber> given_ = 0;
  std::uint64_t pending_rounds_ = 0;
  // The newest result is in a buffer of the board to which this rank has a reference or, if it was computed for this
  // rank only, in `computed_`. Once the application looks at it, it is in `newest_`.
  BufferNumber shown_ = kNoBuffer;
  BufferRef computed_;
  std::shared_ptr<const std::byte> newest_;
  BufferNumber to_release_ = kNoBuffer;      // the previous `shown_`, when the mutex is next held
  BufferRef partial_;                        // of a direct round whose result has another element type or divisor
  std::vector<std::uint64_t> every_member_;  // bitmap of the contributors of a direct round
};

}  // namespace pyc
