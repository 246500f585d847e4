// Allreduce that does not wait for stragglers (eager-SGD, Li et al. 2020, sections 4 and 5): the application's view.
// docs/semantics.md defines calls and rounds; docs/design/partial-allreduce.md and docs/board.md explain the protocol.
//
// A call puts its data into its rank's slot on the node's board. If the policy then allows the round to start, the rank
// executes it within the call, and waiting ranks help. If there are other nodes, the node's leader (leader.h) starts
// rounds and exchanges the node's part. Critical sections of the board's mutex make all decisions: which ranks have
// arrived, which data a round takes, and with which round a call completes. A rank reads a buffer without the mutex
// only if it has a reference. Direct rounds (direct_calls.cc) need no mutex.
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

#include "core/hot.h"
#include "core/nodes.h"
#include "core/relaxed.h"
#include "engine/collective.h"
#include "engine/engine.h"
#include "services/common/staging.h"
#include "services/common/waiting.h"
#include "services/partial_allreduce/absences.h"
#include "services/partial_allreduce/board.h"
#include "services/partial_allreduce/board_wait.h"
#include "services/partial_allreduce/device_buffers.h"
#include "services/partial_allreduce/device_handover.h"
#include "services/partial_allreduce/local_rounds.h"
#include "services/partial_allreduce/policy.h"
#include "services/partial_allreduce/recovery.h"
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
  std::size_t segment_bytes = kSegmentBytes;
  bool on_device = false;    // set by `create`
  bool recoverable = false;  // `recovery_state` may be called
  // Between nodes.
  std::string activation = "tree";
  std::string algorithm = "recursive_doubling";
  std::size_t piece_bytes = kPieceBytes;  // on devices: copied to or from the host at a time
};

struct PartialAllreduceStatistics {
  std::uint64_t contributions = 0;
  std::uint64_t included = 0;  ///< calls that received a round with their data
  std::uint64_t late = 0;
  std::uint64_t missed = 0;  ///< rounds
  std::uint64_t overrun = 0;
  Seconds waited = 0;
};

class PartialAllreduce final : public Collective {
 public:
  using Options = PartialAllreduceOptions;
  using OpenDevice = std::function<std::shared_ptr<Executor>()>;

  /// Collective over the engine's ranks; the ranks of a node must share a machine. Throws StallError as
  /// `Engine::compare` does. If one rank cannot allocate, all throw std::runtime_error; if the size overflows,
  /// std::length_error. The result keeps the engine alive.
  ///
  /// `open_device`: for arrays on devices. It returns the device; if it throws, all ranks throw. Call
  /// `contribute_when_made` instead of `contribute`; `result` is memory of this rank's device. Data for other nodes
  /// goes through host memory. If a rank's device fails, that rank throws DeviceError, and so does the next call of
  /// every other rank, with the number of the failed rank.
  static std::shared_ptr<PartialAllreduce> create(std::shared_ptr<Engine> engine, ReductionMemory& memory,
                                                  Options options, const Nodes& nodes, Seconds timeout,
                                                  const Engine::Interrupt& interrupt,
                                                  const OpenDevice& open_device = {});

  /// The same without agreement, which the caller must ensure. `shared` has `bytes_of_board` bytes and is the same on
  /// all ranks of a node, whose leader joins first. Every rank must create the same collectives in the same order.
  static std::shared_ptr<PartialAllreduce> join(std::shared_ptr<Engine> engine, ReductionMemory& memory,
                                                Options options, const Nodes& nodes,
                                                std::shared_ptr<SharedMemory> shared);
  static std::size_t bytes_of_board(const Options& options, const Nodes& nodes, Rank rank);

  ~PartialAllreduce() override;

  /// Hooks for a call that waits for a rank of this node that is stopped in the critical section. `interrupt` may
  /// throw, to end a wait in which nothing has changed yet. `give_way` lets other threads of this process run, and must
  /// not throw.
  void while_stopped(Engine::Interrupt interrupt, std::function<void()> give_way) {
    interrupt_ = std::move(interrupt);
    give_way_ = std::move(give_way);
  }

  /// Hands over `count` elements, which may be overwritten on return. Throws StallError, with nothing handed over, if a
  /// rank of this node is stopped in the critical section for `limit` seconds (negative: unlimited).
  std::shared_ptr<Call> contribute(const std::byte* data, Seconds limit = -1);
  /// On a device: hands over the values when the present work of `producers` has made them. Later work of the producers
  /// may overwrite them. Returns at once if the previous contribution has been handed over.
  std::shared_ptr<Call> contribute_when_made(const std::byte* data, DeviceHandover::Producers producers,
                                             const Engine::Interrupt& interrupt);
  /// On a device: waits until all data is handed over. Throws StallError after `timeout` seconds (negative: unlimited).
  void finish_handing_over(Seconds timeout, const Engine::Interrupt& interrupt);
  /// Whether the call is done. If so, the result is up to date.
  bool test(Call& call);
  /// `test` without driving the engine or the round.
  bool try_finish(Call& call);
  /// Throws StallError, which names the missing ranks, after `timeout` seconds (negative: unlimited).
  const RoundInfo& wait(Call& call, Seconds timeout, const Engine::Interrupt& interrupt);

  /// Leaves until a flush round completes; the call waits for that round. `limit`: as in `contribute`.
  std::shared_ptr<Call> start_flush(Seconds limit);
  /// Leaves permanently. Returns at once.
  void close();
  /// Discards the pending data. Returns the number of contributions in it.
  std::size_t discard();

  /// `count` elements of the element type, not written again while referenced; null before the first result.
  std::shared_ptr<const std::byte> result();
  /// Copies the result without allocation or lock; false before the first result. Not on a device.
  bool read_result(std::byte* to) const;
  /// Throws if a rank of this node has failed.
  void check_failure() const { board_->check_failure(); }
  /// Runs `action` on this rank's device. A DeviceError fails the collective.
  template <class Action>
  auto on_device(Action action);
  bool closed() const { return closed_; }
  /// All ranks have closed.
  bool ended() const { return board_->ended(); }
  RoundNumber rounds() const { return board_->rounds(); }
  PartialAllreduceStatistics statistics() const;
  /// Without flushes. Empty if contributors are not tracked.
  std::vector<Absences::OfRank> absences() const { return absences_.all(); }
  /// Memory in use by this rank, with its share of the node's memory.
  std::size_t memory_bytes() const;
  /// Throws the error of the next call, if the collective is unusable.
  void check_usable() const;
  const Options& options() const { return options_; }
  /// The schedule between nodes; null if this rank has none.
  const Schedule* schedule() const;

  // ---- after a death (recovery.cc), if the options say so

  /// This rank's state of the rounds. Its engine has stopped, and no surviving rank of its node is in a call.
  RecoveryState recovery_state();
  /// Whether the call was completed before the death; if so, `info` describes its round. Same condition.
  bool complete_recovered(Call& call);
  /// In the collective that continues another one, before its first round: consecutive rounds without this rank's data,
  /// and rounds that this rank has not received. `values`: their sum; null under missed="latest" or without data.
  /// Further calls add rounds.
  void continue_from(std::uint64_t lacking, std::uint64_t missed, const std::byte* values, std::size_t divisor);
  /// Hands over data before the first round, without an arrival.
  void deposit(const std::byte* data);
  /// Makes `result` of the sum that `continue_from` got, if no call has received it.
  void receive_pending();
  /// Makes `result` of accumulators, to be divided; of none: the identity.
  void set_result(const std::byte* values, std::size_t divisor) { results_.set_result(values, divisor); }
  /// The number of this rank's contributions, which is the sequence number of the newest.
  std::uint64_t contributions() const { return sequence_; }
  /// The sequence number of this rank's newest contribution in a completed round; 0: none, or unknown at the moment.
  std::uint64_t delivered();

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
  using Lock = std::unique_lock<BoardMutex>;

  PartialAllreduce(Engine& engine, ReductionMemory& memory, Options options, const Nodes& nodes,
                   std::shared_ptr<SharedMemory> shared, std::unique_ptr<DeviceBuffers> device = nullptr,
                   std::unique_ptr<DeviceHandover> handover = nullptr);

  std::optional<PartialAllreducePlan> plan() const;
  static std::shared_ptr<PartialAllreduce> enroll(std::shared_ptr<Engine> engine,
                                                  std::shared_ptr<PartialAllreduce> made,
                                                  std::optional<PartialAllreducePlan> plan);

  // handing over
  enum class Taker : std::uint8_t { kAtOnce, kLater };  ///< when the application takes the result of a late call
  void check_may_contribute() const;
  void check_not_left() const;
  [[noreturn]] void throw_closed() const;
  std::shared_ptr<Call> new_call() const;
  bool hand_over(Call& call, BufferNumber& written, bool combined);
  void note_arrival(const Call& call);
  void run_rounds(Lock& lock);
  void take_in(BufferNumber into, const std::byte* data);
  static constexpr Seconds kSoon = 0.05;  // enough for the board's mutex to come free, unless its owner is stopped
  /// Locks the board's mutex for the first time in a call, which has changed nothing yet and may be repeated.
  PYC_HOT Lock enter(Seconds limit) {
    Lock lock = enter_soon();
    if (!lock) lock = enter_patiently(limit);
    return lock;
  }
  /// Locks it in the middle of a change, without a limit.
  PYC_HOT Lock reenter() {
    Lock lock = enter_soon();
    if (!lock) lock = enter_patiently(kNever);
    return lock;
  }
  Lock enter_patiently(Seconds limit);
  /// Empty if its owner does not release it in time.
  Lock enter_soon() {
    BoardMutex& mutex = board_->mutex();
    return mutex.try_lock_for(kSoon) ? Lock(mutex, std::adopt_lock) : Lock();
  }
  void leave_for_good();
  void do_leave(Lock& lock, bool for_good);
  void end_of_results();
  void do_contribute(const std::shared_ptr<Call>& call, const std::byte* data, Taker taker);
  template <class Action>
  auto naming_the_dead(Action action);

  // after a death
  std::uint64_t newest_delivered() const;
  RecoveryState::Values missed_sum(RoundNumber end) const;
  std::optional<RoundInfo> completed_flush() const;

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
  /// Throws ClosedError after `discard`, if the call is not done.
  void check_not_aborted() const;
  [[noreturn]] void throw_aborted() const;
  const RoundInfo& do_wait(Call& call, Seconds timeout, const Engine::Interrupt& interrupt);
  bool drive(Call& call);
  std::string explain(const Call& call, const Engine::Interrupt& interrupt);

  // the end
  bool is_served() const;
  bool is_over() const;
  bool release_device();

  Engine* const engine_;  // owns this object
  ReductionMemory& memory_;
  const std::unique_ptr<DeviceBuffers> device_;     // holds `memory_`, if on a device
  const std::unique_ptr<DeviceHandover> handover_;  // contributions that the board has not received
  const Options options_;
  const Nodes nodes_;
  const Elements elements_;
  std::uint32_t id_ = 0;
  std::shared_ptr<FlightRecorder::Track> track_;
  TraceTrack trace_;
  const std::shared_ptr<Board> board_;
  StallInspector inspector_;
  const BoardWait wait_;
  Results results_;
  Absences absences_;
  LocalRounds local_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<Leader> leader_;  // if there are other nodes and this rank is its node's leader

  std::vector<std::shared_ptr<Call>> pending_;  // contributions whose calls are not done
  std::shared_ptr<Call> direct_call_;           // of a direct round that this rank has not received
  std::shared_ptr<Call> open_flush_;            // not done; the next `start_flush` continues one that timed out
  Relaxed<std::uint64_t> sequence_ = 0;
  struct {
    Relaxed<std::uint64_t> included, late, missed, overrun;
  } counts_;
  std::atomic<Seconds> waited_{0};
  // The application has received the rounds before this one, or they were promised to calls that are done.
  Relaxed<RoundNumber> accounted_ = 0;
  BufferNumber spare_ = kNoBuffer;
  bool must_work_ = false;  // this rank has reduced segments: `run_rounds` must follow
  Seconds limit_ = -1;      // of the present `contribute`
  Engine::Interrupt interrupt_;
  std::function<void()> give_way_;
  int looks_ = 0;  // of a waiting call, since it last had work
  Seconds next_look_ = 0;
  std::atomic<bool> closed_{false};
  std::atomic<bool> aborted_{false};  // data was discarded: calls that are not done never will be
};

template <class Action>
PYC_HOT auto PartialAllreduce::on_device(Action action) {
  try {
    return action();
  } catch (const DeviceError&) {
    const std::exception_ptr error = std::current_exception();
    inspector_.check_alive();  // a dead rank's memory may be gone: then report the death
    board_->fail(error);
    throw;
  }
}

template <class Action>
PYC_HOT auto PartialAllreduce::naming_the_dead(Action action) {
  return on_device([&] { return pyc::naming_the_dead(std::move(action), [this] { inspector_.check_alive(); }); });
}

}  // namespace pyc
