// The partial allreduce by messages (eager-SGD, Li et al. 2020, sections 4 and 5).
//
// Two sides meet here. The *application* contributes, waits and flushes, one thread at a time. The *protocol* runs
// rounds, under the engine's progress lock, without clock or I/O of its own: the same code over MPI, over loopback
// threads and in the simulator. Between them stands the *desk*: the deposit that is handed over, the results that are
// handed back, and a few requests, under a mutex that is held for a few instructions and never over a copy.
//
// A round at one rank:   armed --activation--> active --take--> running --result--> complete, the next one armed
//   armed     receives of the activation are posted; a contribution may arrive and, if the policy says so, start it
//   active    activated by this rank or another; stays so while this rank holds its part back (max_staleness) or while
//             a contribution is being combined with the deposit
//   running   the deposit has been taken: what is handed over from now on is for the next round
//
// Calls and rounds (DESIGN section 4): `completed` counts rounds complete here, and is the number of the armed or
// running round. A call is late if rounds have completed that the application has not been given or promised.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/collective.h"
#include "engine/engine.h"
#include "engine/run.h"
#include "memory/pool.h"
#include "services/membership.h"
#include "services/partial_allreduce.h"
#include "services/result_queue.h"

namespace pyc {

/// One rank's plan: activation by any rank, a hold, the allreduce in place on buffer `data`.
struct PartialAllreducePlan {
  Schedule schedule;
  Slice data;
  OpId start;    ///< trigger: this rank starts the round
  OpId active;   ///< signal: the round has reached this rank
  OpId release;  ///< trigger: this rank has taken its deposit and goes ahead
  OpId result;   ///< signal: `data` holds the result
  Rank root;     ///< must be asked to start too; kNoRank: nobody
};
PartialAllreducePlan plan_partial_allreduce(const std::string& activation, const std::string& algorithm, Rank rank,
                                            Rank size, std::size_t count);

class FlatAllreduce final : public PartialAllreduce, public Collective {
 public:
  /// Every rank must create the same collectives in the same order. Sends nothing. The result keeps the engine alive.
  static std::shared_ptr<FlatAllreduce> create(std::shared_ptr<Engine> engine, Memory& memory, Options options);

  // ---- application side

  std::shared_ptr<Call> contribute(const std::byte* data) override;
  bool test(Call& call) override;
  const RoundInfo& wait(Call& call, Seconds timeout, const Engine::Interrupt& interrupt) override;
  std::shared_ptr<Call> start_flush() override;
  void close() override;
  std::size_t discard() override;
  std::shared_ptr<const std::byte> result() const override;
  bool closed() const override;
  RoundNumber rounds() const override;
  const Options& options() const override { return options_; }

  /// `test` that does not drive the engine.
  bool try_finish(Call& call);
  const Schedule& schedule() const { return plan_.schedule; }

  // ---- protocol side (Collective)

  bool advance() override;
  void on_notice(Rank from, ConstBytes notice) override;
  bool busy() const override { return phase_ == Phase::kRunning; }
  Seconds deadline() const override { return grace_ends_; }
  bool finished() const override { return phase_ == Phase::kEnded && draining_.empty(); }
  const std::string& name() const override { return options_.name; }
  void abandon() override;
  std::vector<Rank> not_closed() const override { return membership_.not_in(membership_.closed()); }

 private:
  enum class Phase : std::uint8_t { kArmed, kActive, kRunning, kEnded };

  struct Deposit {
    static constexpr RoundNumber kStale = ~RoundNumber{0};
    BufferRef data;
    bool full = false;
    bool busy = false;               // being combined with: must not be taken
    std::size_t contributions = 0;   // combined in it
    RoundNumber handed_over_at = 0;  // rounds completed when its oldest contribution came
    RoundNumber fresh_for = kStale;  // the round in which its newest contribution arrived
    std::uint64_t newest = 0;        // sequence number
  };

  struct PooledRun {
    std::unique_ptr<Run> run;
    BufferRef data;  // bound to it until it has retired
  };

  /// What this rank has been told of a round as its referee or as the root of its activation.
  struct Told {
    RoundNumber round = 0;
    RankSet arrived = {};
    Rank newest_arrival = kNoRank;
    Rank starter = kNoRank;  // lowest rank that asked to start it
  };

  struct Notice {
    enum Kind : std::uint32_t { kArrived, kStart, kLeft, kInquiry, kReport };
    NoticeHeader header;
    std::uint64_t number = 0;  // a round, or the epoch of kLeft
    std::uint32_t value = 0;   // kStart: the initiator; kLeft: closed; kReport: a Standing
    std::uint32_t reserved = 0;
  };
  /// How a rank stands to a round, for the text of a StallError.
  enum class Standing : std::uint32_t { kSilent, kNotArrived, kArrived, kLeft, kComplete };

  FlatAllreduce(Engine& engine, Memory& memory, Options options, PartialAllreducePlan plan, std::uint32_t id);

  // application side
  using Lock = std::unique_lock<std::mutex>;
  void hand_over(Call& call, BufferRef& spare, bool combined);
  void promise_kept();
  /// What the application has been given and not seen yet.
  struct Given {
    std::vector<RoundRecord> records;
    BufferRef total;  // of older rounds, in "sum" mode
  };
  Given collect(Call& call, Lock& lock);
  void publish(const Given& given);
  [[noreturn]] void stall(const Call& call, const Engine::Interrupt& interrupt);

  // protocol side
  void read_desk();
  void arrive();
  Told& told_of(RoundNumber round);
  void count_arrival(Rank from, RoundNumber round);
  void leave(bool for_good);
  void reconsider();
  void start(Rank initiator);
  void asked_to_start(Rank initiator, RoundNumber round);
  void on_signal(Run& run, OpId op);
  bool take();
  void complete(Run& run);
  void fold_overflow();
  void arm();
  void retire();
  void notify(Rank to, Notice::Kind kind, std::uint64_t number, std::uint32_t value = 0);
  Standing standing(RoundNumber round) const;

  Engine* const engine_;  // owns this
  Memory& memory_;
  const Options options_;
  const Elements elements_;
  const std::uint32_t id_;
  const PartialAllreducePlan plan_;
  const std::shared_ptr<BufferPool> pool_;
  const BlockRange data_blocks_;

  // The desk: both sides, under mutex_.
  mutable std::mutex mutex_;
  Deposit deposit_;
  ResultQueue results_;
  RoundNumber completed_ = 0;
  bool part_taken_ = false;              // of this rank, in the running round
  bool held_ = false;                    // the round waits for data of this rank
  std::uint64_t flushes_ = 0;            // flush rounds completed
  bool flush_waits_ = false;             // a flush call waits for the next flush round
  RoundSummary flushed_;                 // of the newest flush round
  std::optional<RoundNumber> promised_;  // the round that pending calls wait for
  RoundSummary kept_;                    // of the promised round, once complete
  std::optional<RoundNumber> arrival_;   // the application has arrived in this round
  bool wants_flush_ = false;
  bool wants_close_ = false;
  bool closed_ = false;
  bool folding_ = false;                // total_ is being added to
  BufferRef total_;                     // of the rounds that results_ could not hold; empty: none
  RoundNumber totalled_ = 0;            // total_ holds rounds before this
  std::optional<RoundNumber> inquiry_;  // ask all ranks how they stand to this round
  RoundNumber inquired_ = 0;
  std::vector<Standing> reports_;       // the answers
  std::atomic<bool> attention_{false};  // the protocol should read the desk

  // The application side's own.
  std::vector<std::shared_ptr<Call>> pending_;  // contributions whose calls are not done
  std::shared_ptr<Call> open_flush_;            // not done; a flush that ran into its timeout is taken up again
  std::uint64_t sequence_ = 0;
  RoundNumber given_ = 0;      // rounds before this have been given to the application
  RoundNumber accounted_ = 0;  // ... or were promised to a call that is done
  BufferRef spare_;
  BufferRef result_;

  // The protocol's own, under the engine's progress lock.
  Phase phase_ = Phase::kArmed;
  RoundNumber round_ = 0;
  Membership membership_;
  bool arrived_ = false;  // this rank, in round_
  Rank initiator_ = kNoRank;
  Told told_[2];  // of round_ and of the next, by parity: others may be one round ahead
  Seconds grace_ends_ = kNever;
  std::uint64_t lacking_ = 0;  // rounds in a row that this rank had nothing for
  std::uint64_t taken_newest_ = 0;
  std::uint64_t taken_staleness_ = 0;
  std::vector<std::unique_ptr<PooledRun>> pool_of_runs_;
  std::vector<PooledRun*> idle_runs_;
  std::vector<PooledRun*> draining_;  // complete, with sends or activations still in flight
  PooledRun* current_ = nullptr;
};

}  // namespace pyc
