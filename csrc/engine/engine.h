// One rank's engine on one communicator: it owns the transport, drives the collectives and routes what arrives.
//
// The progress lock is the right to drive: held during a pass by the progress thread or by a thread that waits.
// Everything a run or a collective's protocol does happens under it, hence the protocol is single-threaded. In which
// order locks are taken is said in docs/design.md, "Progress, waiting and locks".
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
  /// Called now and then by a waiting thread without any lock held; throws to end the wait (Ctrl-C).
  using Interrupt = std::function<void()>;

  /// All that the progress thread reads: it drives the engine before the constructor returns.
  struct Options {
    // NOLINTBEGIN(readability-redundant-member-init): GCC warns where an initializer leaves out a member without one
    Progress progress = Progress::kThread;
    std::string transport_name{};
    std::size_t flight_rounds = 0;  // that the flight recorder keeps; 0: there is nothing to record or to dump
    std::string group{};            // the flight recorder's name of the communicator
    Seconds stall_warning = -1;
    std::vector<FailureDetector::Neighbour> neighbours{};  // the processes of this machine
    // NOLINTEND(readability-redundant-member-init)
  };
  explicit Engine(std::unique_ptr<Transport> transport, Options options, std::unique_ptr<Trace> trace = nullptr);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Rank rank() const { return transport_->rank(); }
  Rank size() const { return transport_->size(); }
  Progress progress() const { return progress_; }
  Transport& transport() { return *transport_; }
  const std::string& transport_name() const { return transport_name_; }
  Trace* trace() { return trace_.get(); }
  TraceTrack trace_of(std::uint32_t collective) { return {trace_.get(), *transport_, collective}; }
  FlightRecorder& recorder() { return recorder_; }

  /// Seconds before a call that waits for other ranks says so on stderr; negative: never. See `wait_and_warn`.
  Seconds stall_warning() const { return stall_warning_; }
  /// Writes a line to stderr.
  void warn(const std::string& text) const;

  /// Who has died, as far as this rank can see.
  FailureDetector& failures() { return failures_; }
  /// Has the ranks of different machines tell each other that they are there: a machine that is silent for `limit`
  /// seconds is lost. On all ranks; `machines`: the number of each rank's.
  void start_heartbeat(std::vector<int> machines, Seconds limit);

  // ---- collectives

  /// ClosedError if this rank has closed the communicator, though other ranks have not: it starts nothing more.
  void check_can_start() const;
  /// std::runtime_error if a collective that has not ended here has the tags of the one that is created next. Another
  /// rank may find it ended: to be asked before ranks agree, and then it is so for `claim_id` too.
  void check_next_id() const;
  /// The id of the collective that is created next. Ranks create the same collectives in the same order, and so agree.
  std::uint32_t claim_id();
  /// `give` runs before the collective gets messages. If it throws, this engine fails: the other ranks have made the
  /// collective, and data may still arrive in receives that are posted.
  void enroll(std::uint32_t id, std::shared_ptr<Collective> collective, const std::function<void()>& give = [] {});
  std::vector<std::string> open_collectives();
  /// Another collective in whose call `rank` waits, as far as known here; its id. Under the progress lock.
  std::optional<std::uint32_t> waits_in(Rank rank, const Collective* other_than) const;
  /// Empty if it has ended here.
  std::string name_of(std::uint32_t id);

  /// Runs are known by serial number, the upper half of their cookies.
  std::uint32_t reserve_run();
  void set_run(Run& run) { runs_[run.serial()] = &run; }
  /// Sends and receives of all runs that have not completed: each run counts its own.
  std::size_t& open_transfers() { return open_transfers_; }

  // ---- progress

  /// One pass, unless another thread is at it. Returns whether anything moved.
  bool advance();
  bool busy() const { return busy_.load(std::memory_order_relaxed); }
  /// Whether the progress thread must drive it; else the application's calls do all there is to do, and the thread only
  /// listens for questions of other ranks.
  bool in_background() const { return in_background_.load(std::memory_order_relaxed); }
  /// After something was enrolled that needs the progress thread. Without any lock held.
  void wake();
  bool has_waiter() const { return waiters_.load() > 0; }
  /// Whether another thread waits for the progress lock.
  bool is_wanted() const { return wanted_.load() > 0; }
  Seconds deadline() const;

  /// Drives until `done()`; false if `timeout` seconds passed first (negative: no limit). Rethrows the engine's first
  /// error. `sleep`: where other ranks of the node can wake this one; in place of a nap, and as long at most.
  bool wait(const std::function<bool()>& done, Seconds timeout, const Interrupt& interrupt,
            const Backoff::Sleep& sleep = {});

  /// Around what takes long in a `done` of `wait`: for as long as it lives the thread does not count as one that
  /// drives, and the progress thread does it. Outside of `wait` it changes nothing but who drives.
  class Away {
   public:
    explicit Away(Engine& engine);
    ~Away();
    Away(const Away&) = delete;
    Away& operator=(const Away&) = delete;

   private:
    Engine& engine_;
  };

  /// Rethrows the first error that a pass ran into, if any; if ranks have died since, names them too. ClosedError in a
  /// fork of the process that made the engine.
  void check();

  /// False in a fork: the engine, its threads and its connections belong to the parent.
  bool is_in_own_process() const;
  /// ClosedError in a fork.
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

  /// ... unless another thread has the lock: then it is false.
  template <class Action>
  bool exclusively_if_free(Action action) {
    const std::unique_lock lock(progress_mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    action();
    return true;
  }

  /// A collective has something to do in the background from now on.
  void work_in_background() {
    exclusively([this] { in_background_ = true; });
    wake();
  }

  // ---- the whole communicator

  /// What a comparison has found: nothing if all texts are the same, else the text of each rank.
  using Texts = std::optional<std::vector<std::string>>;

  /// Compares a short text of every rank; collective. MismatchError on all ranks, which names them, if they have not
  /// made the same number of collectives: those that are made next would take each other's messages. StallError names
  /// the ranks that did not call it in time, that gave up waiting for this one, or that have left. `what`: for
  /// messages.
  Texts compare(const std::string& text, const std::string& what, Seconds timeout, const Interrupt& interrupt);

  /// Returns what the first of `members`, this rank among them, has given; collective, over other members too.
  std::string hand_down(const std::string& text, const std::vector<Rank>& members, const std::string& what,
                        Seconds timeout, const Interrupt& interrupt);

  /// This rank comes to no step any more: its neighbours in the tree are told, who tell the others if these wait for
  /// it.
  void leave();

  // The same without waiting, for who drives the engine himself.
  void start_comparison(std::string text);
  std::optional<Texts> finished_comparison();
  void start_hand_down(std::string text, const std::vector<Rank>& members);
  std::optional<std::string> finished_hand_down();
  void start_withdrawal() { bootstrap_.withdraw(); }
  bool withdrawn() const { return bootstrap_.withdrawn(); }
  /// The same at once: what ranks make together will not be complete. For who stops waiting in the middle of it.
  void give_up();
  void start_giving_up() { send_departures(Control::kGaveUp); }
  void start_close();
  bool may_close();

  /// Waits until every rank has closed every collective and nothing is in flight. StallError names who has not. One
  /// thread at a time closes, and others wait for it. ClosedError if this thread is in `close` already: a signal
  /// handler.
  void close(Seconds timeout, const Interrupt& interrupt);
  bool closed() const { return closed_; }
  /// Closed, and no thread is in `close` any more: nothing of MPI is used here.
  bool is_freed() const { return closed_ && closer_.load() == std::thread::id(); }

  /// Whether the application of `rank`, to which this rank has sent an active message of the uncreated collective, has
  /// left the communicator: it starts nothing more. What it had sent before has come by then. Under the progress lock.
  bool has_left(Rank rank) const { return left_.contains(rank); }

  /// Ranks that ran into their time limit in a collective call: what was to be made then exists on some ranks only.
  std::vector<Rank> gave_up();

  /// Tells the other ranks of an error on this rank that does not stop them. Each prints one line, "rank R" and `text`,
  /// for the first such error, unless it soon announces the same itself. Waits for nobody.
  void announce(const std::string& text);

  /// The application is gone: closes every collective at once; whoever drives the engine goes on serving the others.
  void abort();

 private:
  /// Of kGaveUp and kLeft.
  struct Departure {
    MessageHeader header;
    std::uint64_t steps;  // of the bootstrap, begun by the sender
  };
  struct Departed {
    Rank rank;
    std::uint64_t steps;
  };
  /// What another rank has announced.
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
  Progress progress_;
  std::string transport_name_;
  std::unique_ptr<Trace> trace_;
  FlightRecorder recorder_;
  FailureDetector failures_;
  const Seconds stall_warning_;

  std::mutex progress_mutex_;
  std::atomic<int> wanted_{0};  // threads that wait for it: a mutex is not fair, and a pass that moves is soon repeated
  std::vector<std::shared_ptr<Collective>> collectives_;  // in the order of creation
  std::shared_ptr<Collective> unbegun_;                   // its beginning failed, and with it this engine
  std::unordered_map<std::uint32_t, Collective*> by_id_;
  std::uint32_t next_collective_ = 1;
  std::vector<Run*> runs_;                                      // by serial
  std::vector<std::pair<Rank, std::vector<std::byte>>> early_;  // active messages for collectives not created here yet
  std::size_t open_transfers_ = 0;
  std::uint64_t received_ = 0;  // active messages, those of the shutdown apart
  Bootstrap bootstrap_;
  RollCall roll_call_;
  Heartbeat heartbeat_;
  Shutdown shutdown_;
  bool in_step_ = false;  // of the bootstrap, or one has failed: no other can begin
  std::vector<Rank> gave_up_;
  RankSet left_;
  std::vector<Departed> departed_;  // who left, and how far it came
  RankSet explicit_partners_;       // that have sent a message of the uncreated collective
  bool leaves_ = false;             // this rank, by close or abort
  bool aborted_ = false;
  bool announced_ = false;  // something went wrong here, and the others know
  std::optional<Notice> notice_;
  std::atomic<bool> closed_{false};
  std::atomic<std::thread::id> closer_;  // the thread that is in `close`

  const unsigned forks_;      // of this process and its ancestors, when the engine was made
  std::exception_ptr error_;  // written once, before failed_
  std::atomic<bool> failed_{false};
  std::atomic<bool> busy_{false};
  std::atomic<bool> in_background_{false};
  std::atomic<int> waiters_{0};
};

/// An engine owns its collectives; who holds a collective holds its engine too.
template <class Kind>
std::shared_ptr<Kind> with_engine(std::shared_ptr<Engine> engine, std::shared_ptr<Kind> collective) {
  using Both = std::pair<std::shared_ptr<Engine>, std::shared_ptr<Kind>>;
  Kind* const of = collective.get();
  return {std::make_shared<Both>(std::move(engine), std::move(collective)), of};
}

/// What is thrown when ranks have died: "WHAT: rank 3 died; THEN".
RankFailedError died(const std::string& what, const std::vector<Rank>& ranks, const std::string& then);

/// Text such as "0.5 s".
std::string in_seconds(Seconds duration);

/// Text such as "ranks 1, 4-6".
std::string list_ranks(const std::vector<Rank>& ranks);

}  // namespace pyc
