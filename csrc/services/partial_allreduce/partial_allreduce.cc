#include "services/partial_allreduce/partial_allreduce.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/hot.h"
#include "engine/stall_warning.h"
#include "memory/copy.h"
#include "services/partial_allreduce/leader.h"

namespace pyc {
namespace {

constexpr int kPatience = 20;       // looks before a waiting rank reduces the data taken so far
constexpr int kLongPatience = 256;  // looks before it does the work of another rank; most looks are sleeps
constexpr Seconds kLookPeriod = 1;  // of checks for dead ranks in calls that never wait: a system call for each rank
constexpr auto kFlushFirst = "A rank that goes on to another collective call, of MPI too, must flush() before it.";

}  // namespace

// ------------------------------------------------------------------------------------------------ handing over

PYC_HOT std::shared_ptr<Call> PartialAllreduce::contribute(const std::byte* data, Seconds limit) {
  return naming_the_dead([&] {
    check_may_contribute();
    limit_ = limit;
    std::shared_ptr<Call> call = new_call();
    do_contribute(call, data, Taker::kAtOnce);
    return call;
  });
}

PartialAllreduce::Lock PartialAllreduce::enter_patiently(Seconds limit) {
  const Seconds begin = engine_->transport().now();
  Seconds warn_at = RobustMutex::kPatience;
  for (;;) {
    if (limit != kNever && interrupt_) interrupt_();
    if (give_way_) give_way_();
    if (Lock lock = enter_soon()) return lock;
    const Seconds waited = engine_->transport().now() - begin;
    if (limit >= 0 && waited >= limit) {
      throw StallError("'" + options_.name + "': not begun after " + in_seconds(limit) + "; " + inspector_.holder() +
                       ". Call it again.");
    }
    if (waited < warn_at) continue;
    board_->mutex().warn(waited);
    warn_at *= 2;
  }
}

PYC_HOT void PartialAllreduce::check_may_contribute() const {
  engine_->check();
  if (open_flush_) {
    throw std::runtime_error("'" + options_.name + "': a flush ran into its timeout: call flush() again first");
  }
  if (closed_) throw_closed();
}

/// Throws if another thread has left since this call began. Needs the mutex.
PYC_HOT void PartialAllreduce::check_not_left() const {
  if (board_->ranks().closed().contains(board_->ranks().own_local_rank())) throw_closed();
}

void PartialAllreduce::throw_closed() const { throw ClosedError("'" + options_.name + "' is closed"); }

PYC_HOT std::shared_ptr<Call> PartialAllreduce::new_call() const {
  std::shared_ptr<Call> call = std::make_shared<Call>();
  call->made = engine_->transport().now();
  return call;
}

PYC_HOT void PartialAllreduce::do_contribute(const std::shared_ptr<Call>& call, const std::byte* data, Taker taker) {
  if (call->made >= next_look_) {
    next_look_ = call->made + kLookPeriod;
    inspector_.check_briefly();
  }
  if (contribute_directly(call, data) || contribute_jointly(call, data, taker)) return;
  Board& board = *board_;
  if (spare_ == kNoBuffer) {
    const Lock lock = enter(limit_);
    spare_ = board.buffers().take();
  }
  take_in(spare_, data);
  Lock lock = enter(limit_);
  BufferNumber earlier = options_.late == Options::Late::kAccumulate ? board.ranks().own().deposit : kNoBuffer;
  bool combined = earlier != kNoBuffer;
  if (combined) {
    board.buffers().retain(earlier);  // a round may take it during the reduction
    lock.unlock();
    memory_.reduce(elements_, options_.op, board.buffers().data(spare_), board.buffers().data(earlier), options_.count);
    lock = reenter();
    combined = board.ranks().own().deposit == earlier;
    board.buffers().release(earlier);
    if (!combined) {  // a round has taken it: hand over only the new data
      lock.unlock();
      take_in(spare_, data);
      lock = reenter();
    }
  }
  check_not_left();
  const bool ends_here = hand_over(*call, spare_, combined) && taker == Taker::kAtOnce;
  trace_.add("contribute", call->made, call->round);
  if (spare_ == kNoBuffer) spare_ = board.buffers().take();  // for the next call, while the mutex is held
  Results::Given given;
  if (ends_here) {
    board.ranks().own().promised = kNoRound;
    given = collect(*call);
  }
  if (!call->late) {
    pending_.push_back(call);
    if (board.round().state().phase == BoardRound::Phase::kArmed) {
      board.round().arrive();
      if (nodes_.count() > 1) board.draw_attention();
    }
  }
  board.ranks().own().called = call->made;
  // A late call is not an arrival and starts no round, but may bring the data that a round awaits.
  if (!call->late || board.round().state().phase != BoardRound::Phase::kArmed) run_rounds(lock);
  if (ends_here) {
    results_.publish(std::move(given), lock);
    note_given(*call, call->made);
    return;
  }
  lock.unlock();
  // The arrival is sent before the caller does anything else.
  if (leader_ && !call->late && taker == Taker::kAtOnce) engine_->advance();
}

PYC_HOT void PartialAllreduce::take_in(BufferNumber into, const std::byte* data) {
  std::byte* const to = board_->buffers().data(into);
  if (device_) return memory_.load(elements_, to, data, options_.count);
  load(memory_, elements_, to, data, options_.count);
}

/// The atomic step of a contribution: the data changes hands, and the call gets its round. True if the call can get its
/// result at once, because it is late and earlier calls have received theirs. With missed="sum" always false, since the
/// total may be incomplete.
PYC_HOT bool PartialAllreduce::hand_over(Call& call, BufferNumber& written, bool combined) {
  Board& board = *board_;
  BoardSlot& own = board.ranks().own();
  if (nodes_.count() == 1) local_.take_over_posts();
  const RoundNumber completed = board.completed();
  promise_kept();
  call.sequence = ++sequence_;
  call.late = completed > accounted_;
  if (adapts_grace(options_.policy)) note_arrival(call);
  const bool missed_its_round = (call.late || own.taken) && !board.round().is_awaited(board.ranks().own_local_rank());
  if (!(missed_its_round && options_.late == Options::Late::kDrop)) {
    if (!combined) {
      own.handed_over_at = completed;
      own.contributions = 0;
    }
    board.buffers().release(own.deposit);
    own.deposit = std::exchange(written, kNoBuffer);
    ++own.contributions;
    own.newest = call.sequence;
    own.fresh_for = call.late ? kNoRound : completed;
  }
  call.round = call.late ? completed - 1 : completed;
  own.promised = call.round;
  if (!call.late) {
    engine_->recorder().note_at(track_.get(), call.round, FlightRecorder::State::kCalled, call.made);
    return false;
  }
  call.done = true;
  results_.describe(call, board.records().newest());
  const bool owes_nothing = results_.given() == accounted_;
  accounted_ = completed;
  return owes_nothing && options_.missed == Options::Missed::kLatest;
}

/// Counts the first call in a round for the grace, or a late call in the first round that it has missed. With several
/// nodes, the leader counts calls in an armed round.
void PartialAllreduce::note_arrival(const Call& call) {
  Board& board = *board_;
  BoardSlot& own = board.ranks().own();
  if (own.promised == board.completed()) return;
  const RoundNumber round = std::min<RoundNumber>(accounted_, board.completed());
  const Seconds now = engine_->transport().now();
  if (nodes_.count() == 1) {
    board.round().state().grace.arrive(round, now);
  } else if (call.late || board.round().state().phase != BoardRound::Phase::kArmed) {
    own.missed = round;
    own.missed_at = now;
    board.draw_attention();
  }
}

// ------------------------------------------------------------------------------------------------ rounds

PYC_HOT void PartialAllreduce::run_rounds(Lock& lock) {
  Board& board = *board_;
  const Rank own = board.ranks().own_local_rank();
  const bool brings = board.ranks().own().deposit != kNoBuffer || board.ranks().left().contains(own);
  if (brings && board.round().is_awaited(own)) board.round().take_own();
  if (nodes_.count() > 1) {
    if (device_ && board.failed()) return;  // the leader continues without data
    if (board.round().work(lock, memory_)) board.draw_attention();
    return;
  }
  if (local_.run(lock)) engine_->recorder().note(id_, board.completed(), FlightRecorder::State::kStarted);
}

// ------------------------------------------------------------------------------------------------ results

PYC_HOT void PartialAllreduce::note_given(const Call& call, Seconds when) {
  if (!call.flush) {
    counts_.included += call.info.included ? 1 : 0;
    counts_.late += call.late ? 1 : 0;
    counts_.overrun += call.info.overrun ? 1 : 0;
    absences_.note(call.info);
  }
  counts_.missed += call.info.missed;
  engine_->recorder().note_at(track_.get(), call.round, FlightRecorder::State::kGiven, when,
                              {call.info.initiator, call.info.contributor_count, call.info.contributors.words()});
}

/// Marks calls whose round has completed as done, and describes the round in them while its record is kept.
PYC_HOT void PartialAllreduce::promise_kept() {
  Board& board = *board_;
  RoundNumber& promised = board.ranks().own().promised;
  if (promised == kNoRound || board.completed() <= promised || accounted_ > promised) return;
  const std::optional<RoundView> record = board.records().of(promised);
  if (!record) throw InternalError("'" + options_.name + "': a promised round was not kept");
  for (const std::shared_ptr<Call>& call : pending_) {
    results_.describe(*call, *record);
    call->done = true;
  }
  pending_.clear();
  accounted_ = std::max<RoundNumber>(accounted_, promised + 1);
  if (board.ranks().own().owed == kNoRound) promised = kNoRound;  // a rank that has left keeps its last record
}

PYC_HOT Results::Given PartialAllreduce::collect(Call& call) {
  Results::Given given = results_.collect(call);
  accounted_ = std::max<RoundNumber>(accounted_, results_.given());
  return given;
}

PYC_HOT bool PartialAllreduce::try_finish(Call& call) {
  if (call.given) return true;
  if (direct_call_.get() == &call) {
    if (const std::optional<bool> finished = try_finish_directly(call)) return *finished;
  }
  Board& board = *board_;
  if (!call.flush && board.completed() <= call.round) return false;
  Lock lock = enter_soon();
  if (!lock) return false;
  if (board.ranks().own().folding) return false;  // a round is being added to the total that this call gets
  if (call.flush) {
    if (board.round().state().flushes <= call.epoch) return false;
    results_.describe(call, board.records().flush_record());
    call.round = call.info.round;
    board.ranks().own().flush_waits = false;
    open_flush_.reset();
  }
  promise_kept();
  results_.publish(collect(call), lock);
  note_given(call, engine_->transport().now());
  return true;
}

PYC_HOT std::shared_ptr<const std::byte> PartialAllreduce::result() { return results_.newest(); }

PYC_HOT bool PartialAllreduce::read_result(std::byte* to) const { return results_.read(to); }

// ------------------------------------------------------------------------------------------------ waiting

/// Does the work that is due. True if the call is done.
bool PartialAllreduce::drive(Call& call) {
  if (board_->round().help(memory_)) must_work_ = true;
  if (must_work_ || (board_->round().grace() > 0 && !call.given)) {
    Lock lock = enter_soon();
    if (!lock) return false;
    must_work_ = false;
    run_rounds(lock);
    looks_ = 0;
  } else if (++looks_ == kPatience) {
    if (const Lock lock = enter_soon()) board_->round().begin_batch();
  } else if (looks_ % kLongPatience == 0) {  // the rank whose turn it is may be stopped, or never call again
    if (Lock lock = enter_soon()) run_rounds(lock);
  }
  return try_finish(call);
}

PYC_HOT bool PartialAllreduce::test(Call& call) { return handover_ ? test_on_device(call) : do_test(call); }

PYC_HOT bool PartialAllreduce::do_test(Call& call) {
  return naming_the_dead([&] {
    engine_->check();
    if (try_finish(call)) return true;
    check_not_aborted();
    board_->check_failure();
    if (leader_ || engine_->progress() == Progress::kCaller) engine_->advance();
    engine_->check();
    return drive(call);
  });
}

PYC_HOT void PartialAllreduce::check_not_aborted() const {
  if (aborted_) throw_aborted();
}

void PartialAllreduce::throw_aborted() const {
  throw ClosedError("'" + options_.name +
                    "': this rank left before the call's data was contributed, or abort() ended the call");
}

PYC_HOT const RoundInfo& PartialAllreduce::wait(Call& call, Seconds timeout, const Engine::Interrupt& interrupt) {
  return handover_ ? wait_on_device(call, timeout, interrupt) : do_wait(call, timeout, interrupt);
}

PartialAllreduceStatistics PartialAllreduce::statistics() const {
  return {.contributions = sequence_,
          .included = counts_.included,
          .late = counts_.late,
          .missed = counts_.missed,
          .overrun = counts_.overrun,
          .waited = waited_};
}

std::size_t PartialAllreduce::memory_bytes() const {
  return board_->memory_bytes() / board_->shape().local_ranks() + results_.memory_bytes() +
         (leader_ ? leader_->memory_bytes() : 0);
}

void PartialAllreduce::check_usable() const {
  engine_->check();
  inspector_.check_alive();
  board_->check_failure();
}

PYC_HOT const RoundInfo& PartialAllreduce::do_wait(Call& call, Seconds timeout, const Engine::Interrupt& interrupt) {
  const auto look = [&] {
    engine_->check();
    return try_finish(call);
  };
  if (naming_the_dead(look)) return call.info;
  check_not_aborted();
  const auto news = [&] { return has_news(call); };
  const TimeSpent time_spent(*engine_, waited_);
  const Seconds begin = trace_.now();
  wait_.spin(news);
  if (naming_the_dead(look)) {
    trace_.add("wait", begin, call.round);
    return call.info;
  }
  looks_ = 0;
  const FlightRecorder::Waiting waiting(engine_->recorder(), id_, call.flush ? "flush" : "round",
                                        call.flush ? kNoRound : call.round);
  const auto wait = [&](Seconds limit) {
    return naming_the_dead([&] { return wait_.until([&] { return drive(call); }, limit, interrupt, news); });
  };
  const auto warning = [&] {  // all ranks of a node wait for the same ranks: warn once
    return board_->ranks().own_is_first_that_waits() ? explain(call, interrupt) + " " + kFlushFirst : std::string();
  };
  if (wait_and_warn(*engine_, timeout, wait, warning)) return call.info;
  const std::string text = explain(call, interrupt);  // takes time, in which the call may complete
  if (!wait(0)) throw StallError(text);
  return call.info;
}

void PartialAllreduce::on_engine_failure(const std::exception_ptr& error) {
  const bool others_need_it = device_ || nodes_.is_leader(engine_->rank());
  if (others_need_it && board_->shape().local_ranks() > 1) board_->fail(error);
}

bool PartialAllreduce::has_waiting(Rank rank) const {
  if (nodes_.of(rank) != nodes_.of(engine_->rank())) return false;
  return board_->ranks()[static_cast<Rank>(nodes_.local_rank_of(rank))].waits.load(std::memory_order_relaxed);
}

std::string PartialAllreduce::explain(const Call& call, const Engine::Interrupt& interrupt) {
  const Seconds waited = engine_->transport().now() - call.made;
  const RoundNumber round = call.flush ? board_->completed() : call.round;
  if (nodes_.count() > 1) {
    inspector_.inquire(round);
    // If all ranks have arrived, no rank is missing, and the round may complete in the remaining time.
    const auto is_known = [&] { return has_news(call) || inspector_.knows_the_missing(); };
    wait_.until(is_known, kAnswerTime, interrupt, [] { return false; });
  }
  return inspector_.text(round, waited, call.flush);
}

// ------------------------------------------------------------------------------------------------ Collective

/// False while a rank of this node is stopped in the critical section: the engine's other collectives would wait for it
/// too, with the progress lock held.
bool PartialAllreduce::can_advance() {
  const bool may_lock = leader_ || device_ || has_grace(options_.policy);
  return !may_lock || board_->shape().local_ranks() == 1 || board_->mutex().comes_free(kSoon);
}

bool PartialAllreduce::advance() {
  bool moved = handover_ && advance_handover();
  if (leader_) moved = leader_->advance() || moved;
  if (device_ && is_over() && (!leader_ || leader_->finished())) return release_device() || moved;
  if (leader_ || deadline() > engine_->transport().now()) return moved;
  if (device_ && board_->failed()) return moved;
  try {
    on_device([&] {
      Lock lock(board_->mutex());
      run_rounds(lock);
    });
  } catch (const DeviceError&) {  // NOLINT(bugprone-empty-catch): the board says so to every call
  }
  return true;
}

/// True if this call frees the device's memory.
bool PartialAllreduce::release_device() {
  if (device_->is_released()) return false;
  if (staging_) staging_->finish();
  return device_->release();
}

bool PartialAllreduce::busy() const { return (leader_ && leader_->busy()) || (handover_ && handover_->is_open()); }

Seconds PartialAllreduce::deadline() const {
  if (leader_) return leader_->deadline();
  if (board_->round().grace() <= 0) return kNever;
  const Lock lock(board_->mutex());
  return local_.deadline();
}

/// Whether departures still count. Between nodes they count after a device failure too, since messages still flow.
bool PartialAllreduce::is_served() const {
  return !board_->failed() || (nodes_.count() > 1 && board_->device_failure());
}

/// No more work on the board. All ranks have closed it, or this rank has and departures do not count.
bool PartialAllreduce::is_over() const { return board_->ended() || (device_ && closed_ && !is_served()); }

bool PartialAllreduce::finished() const {
  return is_over() && (!leader_ || leader_->finished()) && (!device_ || device_->is_released());
}

void PartialAllreduce::on_message(Rank from, ConstBytes message) {
  if (!leader_) throw InternalError("a message for a rank that is not its node's leader");
  leader_->on_message(from, message);
}

std::vector<Rank> PartialAllreduce::not_closed() const {
  if (leader_) return leader_->not_closed();
  std::vector<Rank> ranks;
  Lock lock;
  if (board_->mutex().try_lock_for(kSoon)) lock = Lock(board_->mutex(), std::adopt_lock);
  for (std::size_t i = 0; i < board_->shape().local_ranks(); ++i) {
    const auto local = static_cast<Rank>(i);
    const bool closed = lock ? board_->ranks().closed().contains(local) : board_->ranks()[local].gone.load();
    if (!closed) ranks.push_back(board_->shape().ranks[i]);
  }
  return ranks;
}

}  // namespace pyc
