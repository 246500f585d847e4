// One rank's engine on one communicator. It owns the transport, drives the collectives and dispatches messages.
//
// The progress thread or a waiting thread drives the engine, for one pass, while it holds the progress lock. Runs and
// protocols of collectives work under this lock, so they are single-threaded. docs/design.md, "Progress, waiting and
// locks", has the lock order.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/lock_order.h"
#include "core/rank_set.h"
#include "diagnostics/flight_recorder.h"
#include "diagnostics/trace.h"
#include "engine/backoff.h"
#include "engine/bootstrap.h"
#include "engine/collective.h"
#include "engine/control.h"
#include "engine/failure_detector.h"
#include "engine/heartbeat.h"
#include "engine/roll_call.h"
#include "engine/run.h"
#include "engine/shutdown.h"
#include "transport/transport.h"

namespace pyc {

enum class Progress { kThread, kCaller };

class Engine final : private Listener {
 public:
  /// Called periodically by a waiting thread that holds no lock. Throws to end the wait (Ctrl-C).
  using Interrupt = std::function<void()>;

  /// All settings that the progress thread reads, because it drives the engine before the constructor returns.
  struct Options {
    // NOLINTBEGIN(readability-redundant-member-init): GCC warns where an initializer leaves out a member without one
    Progress progress = Progress::kThread;
    std::string transport_name{};
    std::size_t flight_rounds = 0;  // of the flight recorder; 0 turns off recording and dumps
    std::string group{};            // the communicator's name in the flight recorder
    Seconds stall_warning = -1;
    std::vector<FailureDetector::Neighbour> neighbours{};  // the other ranks of this machine
    // NOLINTEND(readability-redundant-member-init)
  };
  explicit Engine(std::unique_ptr<Transport> transport, Options options, std::unique_ptr<Trace> trace = nullptr);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Rank rank() const { return rank_; }
  Rank size() const { return transport_->size(); }
  Progress progress() const { return progress_; }
  Transport& transport() { return *transport_; }
  const std::string& transport_name() const { return transport_name_; }
  Trace* trace() { return trace_.get(); }
  TraceTrack trace_of(std::uint32_t collective) { return {trace_.get(), *transport_, collective}; }
  FlightRecorder& recorder() { return recorder_; }

  /// Seconds before a call that waits for other ranks warns on stderr; negative: never. See `wait_and_warn`.
  Seconds stall_warning() const { return stall_warning_; }
  void warn(const std::string& text) const;

  FailureDetector& failures() { return failures_; }
  /// A machine that is silent for `limit` seconds is lost. Call it on all ranks. `machines`: of each rank.
  void start_heartbeat(std::vector<int> machines, Seconds limit);

  // ---- collectives

  /// Throws the engine's error, or ClosedError if this rank has closed the communicator, even if others have not.
  void check_can_start() const;
  /// Throws std::runtime_error if an open collective has the tags of the next one. It may have ended on another rank,
  /// so ranks must check before they agree to create one; `claim_id` then succeeds too.
  void check_next_id() const;
  /// The id of the next collective. Ranks create collectives in the same order, so they agree.
  std::uint32_t claim_id();
  /// `give` runs before the collective receives messages. If it throws, this engine fails: the other ranks have created
  /// the collective, and data may still arrive in posted receives.
  void enroll(std::uint32_t id, std::shared_ptr<Collective> collective, const std::function<void()>& give = [] {});
  std::vector<std::string> open_collectives();
  /// The id of another collective in which `rank` is known to wait in a call. Under the progress lock.
  std::optional<std::uint32_t> waits_in(Rank rank, const Collective* other_than) const;
  /// Empty if the collective has ended here.
  std::string name_of(std::uint32_t id);

  /// A run is identified by its serial number, the upper half of its cookies.
  std::uint32_t reserve_run();
  void set_run(Run& run) { runs_[run.serial()] = &run; }
  /// Pending sends and receives of all runs. Each run counts its own.
  std::size_t& open_transfers() { return open_transfers_; }

  // ---- progress

  /// Makes one pass, unless another thread makes one. Returns whether anything moved.
  bool advance();
  bool busy() const { return busy_.load(std::memory_order_relaxed); }
  /// Whether the progress thread must drive the engine. Otherwise it only listens for inquiries of other ranks.
  bool in_background() const { return in_background_.load(std::memory_order_relaxed); }
  /// Call it after something that needs the progress thread was enrolled, without any lock held.
  void wake();
  bool has_waiter() const { return waiters_.load() > 0; }
  bool is_wanted() const { return wanted_.load() > 0; }
  Seconds deadline() const;

  /// Drives the engine until `done()`. Returns false after `timeout` seconds (no limit if negative). Rethrows the
  /// engine's first error. `sleep` replaces naps, if other ranks of the node can wake this thread.
  bool wait(const std::function<bool()>& done, Seconds timeout, const Interrupt& interrupt,
            const Backoff::Sleep& sleep = {});

  /// Marks a long operation in the `done` of `wait`. While it lives, this thread does not count as a driver, and the
  /// progress thread drives. Outside of `wait` it changes only which thread drives.
  class Away {
   public:
    explicit Away(Engine& engine);
    ~Away();
    Away(const Away&) = delete;
    Away& operator=(const Away&) = delete;

   private:
    Engine& engine_;
  };

  /// Rethrows the first error of a pass, with the ranks that have died since. Throws ClosedError in a forked child.
  void check();

  /// False in a forked child: the engine, its threads and its connections belong to the parent.
  bool is_in_own_process() const;
  void check_process() const;

  /// Calls `action` under the progress lock.
  template <class Action>
  auto exclusively(Action action) {
    check_process();
    ++wanted_;
    const std::lock_guard lock(progress_mutex_);
    --wanted_;
    return action();
  }

  /// The same, but returns false without a call if another thread holds the lock.
  template <class Action>
  bool exclusively_if_free(Action action) {
    const std::unique_lock lock(progress_mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    action();
    return true;
  }

  /// A collective needs the progress thread from now on.
  void work_in_background() {
    exclusively([this] { in_background_ = true; });
    wake();
  }

  // ---- the whole communicator

  /// The result of a comparison: nullopt if all texts are the same, otherwise the text of each rank.
  using Texts = std::optional<std::vector<std::string>>;

  /// Compares a short text of every rank; collective. Throws MismatchError with the ranks, on all ranks, if they have
  /// created different numbers of collectives, because later ones would receive each other's messages. StallError names
  /// the ranks that did not call it in time, gave up waiting for this one, or left. `what`: for messages.
  Texts compare(const std::string& text, const std::string& what, Seconds timeout, const Interrupt& interrupt);

  /// Returns the text of the first of `members`, which include this rank. Collective; other ranks have other members.
  std::string hand_down(const std::string& text, const std::vector<Rank>& members, const std::string& what,
                        Seconds timeout, const Interrupt& interrupt);

  /// Announces to the neighbors in the bootstrap tree that this rank takes no further step. A neighbor that waits for
  /// it gives up, which all ranks learn.
  void leave();

  // The same without waiting, for callers that drive the engine themselves.
  void start_comparison(std::string text);
  std::optional<Texts> finished_comparison();
  void start_hand_down(std::string text, const std::vector<Rank>& members);
  std::optional<std::string> finished_hand_down();
  void start_withdrawal() { bootstrap_.withdraw(); }
  bool withdrawn() const { return bootstrap_.withdrawn(); }
  /// Announces to all ranks that the current step will not complete. For a thread that stops waiting in the middle.
  void give_up();
  void start_giving_up() { send_departures(Control::kGaveUp); }
  void start_close();
  bool may_close();

  /// Waits until every rank has closed every collective and nothing is in flight. StallError names the ranks that have
  /// not closed. One thread at a time closes, and others wait for it. Throws ClosedError if this thread is already in
  /// `close`, as in a signal handler.
  void close(Seconds timeout, const Interrupt& interrupt);
  bool closed() const { return closed_; }
  /// Closed, and no thread is in `close`: the engine no longer uses MPI.
  bool is_freed() const { return closed_ && closer_.load() == std::thread::id(); }

  /// Whether the application of `rank` has left the communicator, once this rank has sent it an active message of the
  /// uncreated collective. It starts nothing more, and its messages have arrived. Under the progress lock.
  bool has_left(Rank rank) const { return left_.contains(rank); }

  /// Ranks that reached their time limit in a collective call. Its object then exists on some ranks only.
  std::vector<Rank> gave_up();

  /// Reports to the other ranks an error of this rank that does not stop them. Each prints one line, "rank R" and
  /// `text`, for the first such error, unless it soon announces the same one. Does not block.
  void announce(const std::string& text);

  /// Whether all ranks have closed, so that others may have ended.
  bool all_closed() {
    return exclusively([this] { return shutdown_.is_silent(); });
  }
  /// Ends all progress, because these ranks have died. Every further call throws RankFailedError.
  void stop(const std::vector<Rank>& failed);
  /// Ends all progress on every rank, without a death: further calls throw RankFailedError, which names no rank.
  void stop_all();
  /// The application is gone: closes every collective at once. The engine must still be driven, to serve other ranks.
  void abort();

 private:
  /// The message of kGaveUp and kLeft.
  struct Departure {
    MessageHeader header;
    std::uint64_t steps;  // bootstrap steps that the sender has begun
  };
  struct Departed {
    Rank rank;
    std::uint64_t steps;
  };
  struct Notice {
    Rank from;
    std::string text;
    Seconds received;
    bool settled = false;  // printed, or announced here too
  };

  bool pass();
  void on_notice(Rank from, ConstBytes message);
  void print_notice();
  void fail(std::exception_ptr error);
  void fail_by_current_exception();
  void give_up_on(std::uint32_t id);
  [[noreturn]] void throw_failure() const;
  std::exception_ptr seen_death(std::exception_ptr reported) const;
  void look_for_the_dead();
  void tell_other_machines(const std::exception_ptr& error);
  void speak_to_other_machines(Seconds now);
  void look_at_other_machines();
  void forget(const std::vector<const Collective*>& ended);
  void send(Rank to, ConstBytes message);
  void send_departure(Control kind, Rank to);
  void send_departures(Control kind);
  bool is_sending() const { return transport_->in_flight() > open_transfers_; }
  void begin_step();
  Texts compared(const std::string& what);
  void finish_step(const std::vector<Rank>& members, const std::string& what, Seconds timeout,
                   const Interrupt& interrupt);
  bool wait_for_step(std::uint64_t step, Seconds timeout, const Interrupt& interrupt);
  bool is_decided_after_all(const Interrupt& interrupt);
  std::string why_incomplete(std::uint64_t step, std::vector<Rank> missing, const std::vector<Rank>& members,
                             Seconds waited) const;
  bool is_first_not_in(const std::vector<Rank>& ranks) const;
  void write_trace_of_failure() const;
  std::string what_is_open();
  std::vector<Rank> left_before(std::uint64_t step) const;
  std::vector<Rank> call_roll(std::uint64_t step, const Interrupt& interrupt);
  void begin_closing(Seconds timeout, const Interrupt& interrupt);
  void on_control(Rank from, Control kind, ConstBytes message);

  void on_sent(Cookie cookie) override;
  void on_received(Cookie cookie, ConstBytes header, bool has_payload) override;
  void on_message(Rank from, ConstBytes message) override;

  std::unique_ptr<Transport> transport_;
  const Rank rank_;
  Progress progress_;
  std::string transport_name_;
  std::unique_ptr<Trace> trace_;
  FlightRecorder recorder_;
  FailureDetector failures_;
  const Seconds stall_warning_;

  Ordered<LockRank::kProgress> progress_mutex_;
  std::atomic<int> wanted_{0};  // threads that wait for the lock, which is not fair, while passes soon repeat
  std::vector<std::shared_ptr<Collective>> collectives_;  // in the order of creation
  std::shared_ptr<Collective> unbegun_;                   // its start failed, and this engine with it
  std::unordered_map<std::uint32_t, Collective*> by_id_;
  std::uint32_t next_collective_ = 1;
  std::vector<Run*> runs_;                                      // by serial
  std::vector<std::pair<Rank, std::vector<std::byte>>> early_;  // active messages of collectives not created here yet
  std::size_t open_transfers_ = 0;
  std::uint64_t received_ = 0;  // active messages, without the shutdown's
  Bootstrap bootstrap_;
  RollCall roll_call_;
  Heartbeat heartbeat_;
  Shutdown shutdown_;
  bool in_step_ = false;  // in a step of the bootstrap, or a step has failed; then no other can begin
  std::vector<Rank> gave_up_;
  RankSet left_;
  std::vector<Departed> departed_;  // the ranks that have left, with their steps
  RankSet explicit_partners_;       // the ranks that have sent a message of the uncreated collective
  bool leaves_ = false;             // this rank has left, by close or abort
  bool aborted_ = false;
  bool announced_ = false;  // an error of this rank was announced
  std::optional<Notice> notice_;
  std::atomic<bool> closed_{false};
  std::atomic<std::thread::id> closer_;  // the thread in `close`

  const unsigned forks_;      // of this process and its ancestors, when the engine was made
  std::exception_ptr error_;  // written once, before failed_
  std::atomic<bool> failed_{false};
  std::atomic<bool> busy_{false};
  std::atomic<bool> in_background_{false};
  std::atomic<int> waiters_{0};
};

/// An engine owns its collectives. This pointer to a collective also keeps the engine alive.
template <class Kind>
std::shared_ptr<Kind> with_engine(std::shared_ptr<Engine> engine, std::shared_ptr<Kind> collective) {
  using Both = std::pair<std::shared_ptr<Engine>, std::shared_ptr<Kind>>;
  Kind* const of = collective.get();
  return {std::make_shared<Both>(std::move(engine), std::move(collective)), of};
}

/// The error for dead ranks: "WHAT: rank 3 died; THEN".
RankFailedError died(const std::string& what, const std::vector<Rank>& ranks, const std::string& then);

/// Text such as "0.5 s".
std::string in_seconds(Seconds duration);

/// Text such as "ranks 1, 4-6".
std::string list_ranks(const std::vector<Rank>& ranks);

}  // namespace pyc
