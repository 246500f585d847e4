// Allreduce that does not wait for stragglers (eager-SGD, Li et al. 2020, sections 4 and 5): what its application sees.
//
// A call hands its data over by writing it into a buffer of its node's board and putting that into its slot, under the
// board's mutex. If the policy says that the round may start, whoever made that so takes all deposits, still under
// the mutex, reduces them without it, and publishes the result. Ranks that wait help to reduce; ranks that sleep or
// compute are not disturbed, and find the newest result when they come. If there are other nodes, the node's leader
// (see leader.h) sees arrivals, starts the round when any node does, and takes the node's part to the others.
//
// Calls and rounds (docs/semantics.md). A call is late if rounds have completed that the application has not been given
// or promised. A call that is not late arrives in the present round and completes with it; a late call waits for
// nothing and is no arrival.
//
// That the promises hold within a node: all decisions (who has arrived, what a round takes, which round a call
// completes with) are made in critical sections of one mutex, hence in one order that all its ranks agree on. A deposit
// changes hands whole. What is read without the mutex is a buffer that the reader has a reference to, and a
// buffer with more than one reference is never written.
//
// Small data under `Full` on one node goes another way, without the mutex, as long as ranks contribute and wait by
// turns: direct_calls.cc.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/nodes.h"
#include "core/relaxed.h"
#include "engine/collective.h"
#include "engine/engine.h"
#include "services/common/staging.h"
#include "services/common/waiting.h"
#include "services/partial_allreduce/board.h"
#include "services/partial_allreduce/board_wait.h"
#include "services/partial_allreduce/device_buffers.h"
#include "services/partial_allreduce/device_handover.h"
#include "services/partial_allreduce/local_rounds.h"
#include "services/partial_allreduce/policy.h"
#include "services/partial_allreduce/results.h"
#include "services/partial_allreduce/round.h"
#include "services/partial_allreduce/stall_inspector.h"

namespace pyc {

class Leader;
struct PartialAllreducePlan;

struct PartialAllreduceOptions {
  enum class Late : std::uint8_t { kAccumulate, kReplace, kDrop };
  enum class Missed : std::uint8_t { kLatest, kSum };

  std::string name;
  std::size_t count = 0;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Policy policy;
  Late late = Late::kAccumulate;
  Missed missed = Missed::kLatest;
  std::optional<std::uint64_t> max_staleness;
  std::size_t history = 8;
  bool track_members = true;
  std::size_t segment_bytes = kSegmentBytes;  // of the reduction within a node
  bool on_device = false;                     // by create_on_device
  // Between nodes.
  std::string activation = "tree";
  std::string algorithm = "recursive_doubling";
  std::size_t piece_bytes = kPieceBytes;  // on devices: that are copied to the host, and back, at a time
};

/// What the application's calls came to.
struct PartialAllreduceStatistics {
  std::uint64_t contributions = 0;
  std::uint64_t included = 0;  ///< calls that were given a round with their data in it
  std::uint64_t late = 0;
  std::uint64_t missed = 0;   ///< rounds
  std::uint64_t overrun = 0;  ///< calls
  Seconds waited = 0;
};

class PartialAllreduce final : public Collective {
 public:
  using Options = PartialAllreduceOptions;
  using OpenDevice = std::function<std::shared_ptr<Executor>()>;

  /// Collective over the engine's ranks; those of a node must share a machine. StallError as `Engine::compare`;
  /// std::runtime_error on all ranks if the memory cannot be had on one, std::length_error on all if its bytes cannot
  /// even be counted. The result keeps the engine alive.
  static std::shared_ptr<PartialAllreduce> create(std::shared_ptr<Engine> engine, ReductionMemory& memory,
                                                  Options options, const Nodes& nodes, Seconds timeout,
                                                  const Engine::Interrupt& interrupt);

  /// The same on devices: `contribute_when_made` instead of `contribute` takes, and `result` gives, memory of this
  /// rank's device. Between nodes data goes through memory of the host. What fails on one rank's device is a
  /// DeviceError there, and by the next call of every other rank, with that rank's number. `open` gives the device;
  /// what it throws is an error on all ranks.
  static std::shared_ptr<PartialAllreduce> create_on_device(std::shared_ptr<Engine> engine, const OpenDevice& open,
                                                            Options options, const Nodes& nodes, Seconds timeout,
                                                            const Engine::Interrupt& interrupt);

  /// The same without agreement, which the caller sees to: `shared` has `bytes_of_board` and is the same on all ranks
  /// of a node; its leader comes first. Every rank must create the same collectives in the same order.
  static std::shared_ptr<PartialAllreduce> join(std::shared_ptr<Engine> engine, ReductionMemory& memory,
                                                Options options, const Nodes& nodes,
                                                std::shared_ptr<SharedMemory> shared);
  static std::size_t bytes_of_board(const Options& options, const Nodes& nodes, Rank rank);

  ~PartialAllreduce() override;

  /// While a call waits for a rank of this node that is stopped while it changes what they share. `interrupt` ends the
  /// wait where nothing is changed yet; `give_way` lets other threads of this process run, and does not throw.
  void while_stopped(Engine::Interrupt interrupt, std::function<void()> give_way) {
    interrupt_ = std::move(interrupt);
    give_way_ = std::move(give_way);
  }

  /// Hands over `count` elements; they may be overwritten on return. StallError if a rank of this node is stopped for
  /// `limit` seconds (negative: no limit) while it changes what they share: nothing is handed over.
  std::shared_ptr<Call> contribute(const std::byte* data, Seconds limit = -1);
  /// On a device: what `producers` make there with what they have been given so far. It is handed over when it is made;
  /// what they do afterwards may overwrite it. Returns at once, if what was contributed before is handed over.
  std::shared_ptr<Call> contribute_when_made(const std::byte* data, DeviceHandover::Producers producers,
                                             const Engine::Interrupt& interrupt);
  /// On a device: until all that was contributed is handed over. StallError after `timeout` seconds (negative: no
  /// limit).
  void finish_handing_over(Seconds timeout, const Engine::Interrupt& interrupt);
  /// Whether the call is done; if so the result is up to date.
  bool test(Call& call);
  /// `test` that drives nothing.
  bool try_finish(Call& call);
  /// StallError after `timeout` seconds (negative: no limit) names the ranks that are missing.
  const RoundInfo& wait(Call& call, Seconds timeout, const Engine::Interrupt& interrupt);

  /// Leaves until a flush round completes, which is what the call waits for. `limit`: as of `contribute`.
  std::shared_ptr<Call> start_flush(Seconds limit);
  /// Leaves for good. Returns at once.
  void close();
  /// Throws away what waits to be taken; the number of contributions in it.
  std::size_t discard();

  /// `count` elements of the element type, never written again while referenced; null before the first.
  std::shared_ptr<const std::byte> result();
  /// Copies it there, which takes no memory and no lock; false before the first. Not on a device.
  bool read_result(std::byte* to) const;
  /// Throws what a rank of this node failed with.
  void check_failure() const { board_->check_failure(); }
  /// Does something on this rank's device; what fails there, fails the collective.
  template <class Action>
  auto on_device(Action action);
  bool closed() const { return closed_; }
  RoundNumber rounds() const { return board_->rounds(); }
  PartialAllreduceStatistics statistics() const;
  /// That this rank has taken so far, with its part of what its node's ranks share.
  std::size_t memory_bytes() const;
  /// Throws what the next call would, if it cannot be used any more.
  void check_usable() const;
  const Options& options() const { return options_; }
  /// What this rank's engine does between nodes; null if it does nothing there.
  const Schedule* schedule() const;

  // ---- Collective

  bool can_advance() override;
  bool advance() override;
  void on_message(Rank from, ConstBytes message) override;
  bool busy() const override;
  bool in_background() const override { return leader_ != nullptr || (device_ && (closed_ || handover_->is_open())); }
  Seconds deadline() const override;
  bool finished() const override;
  const std::string& name() const override { return options_.name; }
  void abort() override;
  std::vector<Rank> not_closed() const override;
  void name_the_dead() const override { inspector_.check_alive(); }
  bool has_waiting(Rank rank) const override;
  void on_engine_failure(const std::exception_ptr& error) override;

 private:
  using Lock = std::unique_lock<RobustMutex>;

  PartialAllreduce(Engine& engine, ReductionMemory& memory, Options options, const Nodes& nodes,
                   std::shared_ptr<SharedMemory> shared, std::unique_ptr<DeviceBuffers> device = nullptr,
                   std::unique_ptr<DeviceHandover> handover = nullptr);

  std::optional<PartialAllreducePlan> plan() const;
  static std::shared_ptr<PartialAllreduce> enroll(std::shared_ptr<Engine> engine,
                                                  std::shared_ptr<PartialAllreduce> made,
                                                  std::optional<PartialAllreducePlan> plan);

  // handing over
  enum class Taker : std::uint8_t { kAtOnce, kLater };  ///< when the application takes what a late call is given
  void check_may_contribute() const;
  void check_not_left() const;
  [[noreturn]] void throw_closed() const;
  std::shared_ptr<Call> new_call() const;
  bool hand_over(Call& call, BufferNumber& written, bool combined);
  void run_rounds(Lock& lock);
  void take_in(BufferNumber into, const std::byte* data);
  static constexpr Seconds kSoon = 0.05;  // in which the board's mutex comes free, unless its owner is stopped
  /// The board's mutex, for the first time in a call: nothing is changed yet, and the call may be repeated.
  Lock enter(Seconds limit) {
    Lock lock = enter_soon();
    if (!lock) lock = enter_patiently(limit);
    return lock;
  }
  /// ... and in the middle of a change: waits until it is free.
  Lock reenter() {
    Lock lock = enter_soon();
    if (!lock) lock = enter_patiently(kNever);
    return lock;
  }
  Lock enter_patiently(Seconds limit);
  /// Empty if its owner does not get on.
  Lock enter_soon() {
    RobustMutex& mutex = board_->mutex();
    return mutex.try_lock_for(kSoon) ? Lock(mutex, std::adopt_lock) : Lock();
  }
  void leave_for_good();
  void do_leave(Lock& lock, bool for_good);
  void end_of_results();
  void do_contribute(const std::shared_ptr<Call>& call, const std::byte* data, Taker taker);
  template <class Action>
  auto naming_the_dead(Action action);

  // joining rounds (joint_calls.cc)
  bool may_join();
  bool contribute_jointly(const std::shared_ptr<Call>& call, const std::byte* data, Taker taker);

  // direct rounds (direct_calls.cc)
  bool contribute_directly(const std::shared_ptr<Call>& call, const std::byte* data);
  bool may_contribute_directly() const;
  std::optional<bool> try_finish_directly(Call& call);
  void move_direct_call();
  bool has_news(const Call& call) const;

  // on devices (device_calls.cc)
  bool hand_over_if_made();
  bool advance_handover();
  void await_handover(Call* call, Seconds timeout, const Engine::Interrupt& interrupt);
  bool test_on_device(Call& call);
  void check_not_dropped(const Call& call) const;
  const RoundInfo& wait_on_device(Call& call, Seconds timeout, const Engine::Interrupt& interrupt);

  // results
  void promise_kept();
  Results::Given collect(Call& call);
  void note_given(const Call& call, Seconds when);

  // waiting
  bool do_test(Call& call);
  /// ClosedError after `discard`, for a call that is not done.
  void check_not_aborted() const;
  [[noreturn]] void throw_aborted() const;
  const RoundInfo& do_wait(Call& call, Seconds timeout, const Engine::Interrupt& interrupt);
  bool drive(Call& call);
  std::string explain(const Call& call, const Engine::Interrupt& interrupt);

  // its end
  bool is_served() const;
  bool is_over() const;
  bool release_device();

  Engine* const engine_;  // owns this
  ReductionMemory& memory_;
  const std::unique_ptr<DeviceBuffers> device_;     // where `memory_` is, if on a device
  const std::unique_ptr<DeviceHandover> handover_;  // ... what the board has not got yet
  const Options options_;
  const Nodes nodes_;
  const Elements elements_;
  std::uint32_t id_ = 0;  // set before the first call
  std::shared_ptr<FlightRecorder::Track> track_;
  TraceTrack trace_;
  const std::shared_ptr<Board> board_;
  StallInspector inspector_;
  const BoardWait wait_;
  Results results_;
  LocalRounds local_;                 // used if there are no other nodes
  std::unique_ptr<Staging> staging_;  // the leader's, on a device
  std::unique_ptr<Leader> leader_;    // if there are other nodes and this rank speaks for its own

  std::vector<std::shared_ptr<Call>> pending_;  // contributions whose calls are not done
  std::shared_ptr<Call> direct_call_;           // of a direct round, which this rank has not been given
  std::shared_ptr<Call> open_flush_;            // not done; a flush that ran into its timeout is taken up again
  Relaxed<std::uint64_t> sequence_ = 0;
  struct {
    Relaxed<std::uint64_t> included, late, missed, overrun;
  } counts_;
  std::atomic<Seconds> waited_{0};
  // Rounds before this were given to the application, or promised to a call that is done.
  Relaxed<RoundNumber> accounted_ = 0;
  BufferNumber spare_ = kNoBuffer;
  bool must_work_ = false;  // it was the last to reduce a part of a round: the round is this rank's to complete
  Seconds limit_ = -1;      // of the present `contribute`
  Engine::Interrupt interrupt_;
  std::function<void()> give_way_;
  int looks_ = 0;  // of a waiting call since it last had something to do
  Seconds next_look_ = 0;
  std::atomic<bool> closed_{false};
  std::atomic<bool> aborted_{false};  // ... at once: no call that is not done will be
};

template <class Action>
auto PartialAllreduce::on_device(Action action) {
  try {
    return action();
  } catch (const DeviceError&) {
    const std::exception_ptr error = std::current_exception();
    inspector_.check_alive();  // a rank that dies may take its memory with it
    board_->fail(error);
    throw;
  }
}

template <class Action>
auto PartialAllreduce::naming_the_dead(Action action) {
  return on_device([&] { return pyc::naming_the_dead(std::move(action), [this] { inspector_.check_alive(); }); });
}

}  // namespace pyc
