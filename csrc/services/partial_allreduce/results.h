// What one rank's application is given of a partial allreduce: the newest result or, under missed="sum", the sum of all
// results that it had not been given.
//
// That takes two steps. `collect`, in the critical section that ends a call, decides which rounds the call is given and
// refers to their buffers. `publish` makes one result of them: a single buffer is looked at where it is, on the board,
// and only what must be computed is copied.
//
// Owned by a PartialAllreduce. Only calls of the application come here, one thread at a time and never the engine's, so
// what is kept here has no lock. The records, totals and reference counts are the board's and need its mutex. A buffer
// is read without it, by this rank or by the application: each has a reference to it until it is done, and what has
// more than one reference is never written. Who lets go of a result may be any thread: see leases.h.
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
  /// `history`: rounds that a call can have missed before that is an overrun.
  Results(ReductionMemory& memory, std::shared_ptr<Board> board, std::size_t history);

  /// What a call is given: buffers that this rank has a reference to until they are summed or let go.
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
    std::vector<Term> others_;  // under missed="sum"
    bool nothing_new_ = false;
  };

  /// Allocates as many as it may hold at once.
  void reserve(std::size_t buffers);

  // ---- under the board's mutex

  /// Fills in what the application is told of a completed round.
  void describe(Call& call, const RoundView& view) const;
  /// Every round up to the call's that the application has not been given; the call is given them and is done.
  Given collect(Call& call);
  /// Of a direct round that is complete, and that this rank has not been given: puts it on the board. The call is done.
  void keep(Call& call);
  /// Makes the result from what was collected; releases the lock.
  void publish(Given given, std::unique_lock<RobustMutex>& lock);

  // ---- without it

  /// Rounds before this have been given to the application.
  RoundNumber given() const { return given_; }
  std::size_t memory_bytes() const { return pool_->memory_bytes(); }
  /// Makes the result of a direct round that is complete. The application has been given all rounds before it.
  void give_directly(Call& call);
  /// The newest, never written again while referenced; null before the first.
  std::shared_ptr<const std::byte> newest();
  /// Copies it there, which takes no memory and no lock; false before the first.
  bool read(std::byte* to) const;

 private:
  /// Where it is needed: a direct round has no record.
  struct DirectRecord {
    RoundRecord record;
    RoundShare share;
  };

  void compute(Given& given);
  void take_back();
  DirectRecord record_of(const Call& call) const;
  std::size_t divisor() const;
  void fold(RoundNumber round, std::byte* into);

  ReductionMemory& memory_;
  const std::size_t history_;
  const std::shared_ptr<Board> board_;
  const std::shared_ptr<Leases> leases_;
  const std::shared_ptr<BufferPool> pool_;  // for results that are computed for this rank alone
  Relaxed<RoundNumber> given_ = 0;
  // The newest lies in a buffer of the board that this rank has a reference to, or, if it was computed for this rank
  // alone, in `computed_`; once somebody looks at it, in `newest_`.
  BufferNumber shown_ = kNoBuffer;
  BufferRef computed_;
  std::shared_ptr<const std::byte> newest_;
  BufferNumber to_release_ = kNoBuffer;      // shown before, as soon as the mutex is held anyway
  BufferRef partial_;                        // of a direct round whose result has another form
  std::vector<std::uint64_t> every_member_;  // bitmap of the contributors of a direct round
};

}  // namespace pyc
