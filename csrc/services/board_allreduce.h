// The partial allreduce on the board of a node: nobody sends anything, and no thread works in the background.
//
// A call hands its data over by writing it into a buffer of the board and hanging that up at its place, under the
// board's mutex. If the policy says that the round may start, whoever made that so takes all deposits, still under the
// mutex, reduces them without it, and publishes the result. Ranks that wait help to reduce; ranks that sleep or compute
// are not disturbed, and find the newest result when they come.
//
//   armed --start and hold, under the mutex--> combining --reduce, without it--> published: the next round is armed
//
// That the promises hold: all decisions (who has arrived, what a round takes, which round a call completes with) are
// made in critical sections of one mutex, hence in one order that all ranks agree on. A deposit is hung up and taken
// down whole. What is read without the mutex is a buffer that the reader has a reference to, and a buffer with more
// than one reference is never written.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/collective.h"
#include "memory/pool.h"
#include "node/board.h"
#include "services/partial_allreduce.h"

namespace pyc {

class BoardAllreduce final : public PartialAllreduce, public Collective {
 public:
  /// Collective over the engine's ranks, which must share a machine. StallError as `Engine::exchange`;
  /// std::runtime_error on all ranks if the memory cannot be had on one.
  static std::shared_ptr<BoardAllreduce> create(std::shared_ptr<Engine> engine, Memory& memory, Options options,
                                                Seconds timeout, const Engine::Interrupt& interrupt);

  std::shared_ptr<Call> contribute(const std::byte* data) override;
  bool test(Call& call) override;
  const RoundInfo& wait(Call& call, Seconds timeout, const Engine::Interrupt& interrupt) override;
  std::shared_ptr<Call> start_flush() override;
  void close() override;
  std::size_t discard() override;
  std::shared_ptr<const std::byte> result() const override { return result_; }
  bool closed() const override { return closed_; }
  RoundNumber rounds() const override { return board_->completed(); }
  const Options& options() const override { return options_; }

  // Nothing is done in the background.
  bool advance() override { return false; }
  void on_notice(Rank from, ConstBytes notice) override;
  bool busy() const override { return false; }
  bool in_background() const override { return false; }
  Seconds deadline() const override { return kNever; }
  bool finished() const override { return board_->closers() == engine_->size(); }
  const std::string& name() const override { return options_.name; }
  void abandon() override;
  std::vector<Rank> not_closed() const override;

 private:
  using Lock = std::unique_lock<RobustMutex>;

  BoardAllreduce(Engine& engine, Memory& memory, Options options, const BoardShape& shape,
                 std::shared_ptr<SharedMemory> shared, bool first);

  void hand_over(Call& call, BufferNumber& written, bool combined);
  void arrive();
  bool may_start();
  bool is_held(const Board::Place& place) const;
  bool may_take() const;
  void run_rounds(Lock& lock);
  void leave(Lock& lock, bool for_good);

  RoundSummary summary(const Board::RecordView& view) const;
  void promise_kept();
  bool try_finish(Call& call);
  /// What the application is given: buffers that it has a reference to until they are summed or let go.
  struct Given {
    struct Term {
      BufferNumber buffer;
      std::size_t divisor;
    };
    std::vector<Term> terms;
    bool nothing_new = false;
    bool zero_copy = false;
  };
  Given collect(Call& call);
  void publish(Given given);
  std::shared_ptr<const std::byte> pinned(BufferNumber buffer);

  bool drive(Call& call);
  void check_alive() const;
  [[noreturn]] void stall(const Call& call);

  Engine* const engine_;  // owns this
  Memory& memory_;
  const Options options_;
  const Elements elements_;
  const std::shared_ptr<Board> board_;
  const std::shared_ptr<BufferPool> pool_;  // for results that are computed for this rank alone

  std::vector<std::shared_ptr<Call>> pending_;
  std::shared_ptr<Call> open_flush_;
  std::uint64_t sequence_ = 0;
  RoundNumber given_ = 0;
  RoundNumber accounted_ = 0;
  BufferNumber spare_ = kNoBuffer;
  std::shared_ptr<const std::byte> result_;
  std::shared_ptr<std::atomic<int>> pins_ = std::make_shared<std::atomic<int>>(0);
  std::atomic<bool> closed_{false};
};

}  // namespace pyc
