#include "services/board_allreduce.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "core/error.h"

namespace pyc {
namespace {

constexpr int kYields = 200;             // before a waiting rank sleeps
constexpr Seconds kLongestSleep = 0.05;  // then it looks whether it was interrupted and whether everybody lives
constexpr int kMostPins = 2;             // results that the application may hold on the board; others are copied
constexpr char kRefused[] = "refused: ";

/// What every rank says; throws if one could not do its part.
std::vector<std::string> heard(Engine& engine, const std::string& mine, const std::string& what, Seconds timeout,
                               const Engine::Interrupt& interrupt) {
  std::vector<std::string> all = engine.exchange(mine, what, timeout, interrupt);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].starts_with(kRefused)) {
      throw std::runtime_error(what + ": on rank " + std::to_string(r) + ": " + all[r].substr(sizeof kRefused - 1));
    }
  }
  return all;
}

}  // namespace

// ------------------------------------------------------------------------------------------------ construction

std::shared_ptr<BoardAllreduce> BoardAllreduce::create(std::shared_ptr<Engine> engine, Memory& memory, Options options,
                                                       Seconds timeout, const Engine::Interrupt& interrupt) {
  Engine& e = *engine;
  // Synchronous means that every rank is waited for in every round.
  if (options.policy.kind == Policy::Kind::kFull) options.max_staleness = 0;
  const bool sums = options.missed == Options::Missed::kSum;
  const BoardShape shape{.size = e.size(),
                         .count = options.count,
                         .elements = elements_of(options.type, options.op),
                         .op = options.op,
                         .records = sums ? options.history + 1 : 1,
                         .keeps_totals = sums};
  const std::string what = "the board of '" + options.name + "'";
  std::shared_ptr<SharedMemory> shared;
  std::shared_ptr<BoardAllreduce> made;
  const auto attempt = [&](auto action) -> std::string {
    try {
      return action();
    } catch (const std::exception& error) {
      return kRefused + std::string(error.what());
    }
  };
  const auto join = [&](bool first) {
    made.reset(new BoardAllreduce(e, memory, options, shape, shared, first));
    return shared->handle();
  };
  const std::string mine = e.rank() != 0 ? std::string() : attempt([&] {
    shared = SharedMemory::create(Board::bytes(shape));
    return join(true);
  });
  const std::string handle = heard(e, mine, what, timeout, interrupt)[0];
  const std::string joined = e.rank() == 0 ? handle : attempt([&] {
    shared = SharedMemory::open(handle);
    return join(false);
  });
  heard(e, joined, what, timeout, interrupt);
  shared->seal();
  e.exclusively([&] { e.enroll(e.claim_place(), made); });
  // The engine owns its collectives; who holds a collective holds its engine too.
  using Both = std::pair<std::shared_ptr<Engine>, std::shared_ptr<BoardAllreduce>>;
  auto both = std::make_shared<Both>(std::move(engine), made);
  return {both, made.get()};
}

BoardAllreduce::BoardAllreduce(Engine& engine, Memory& memory, Options options, const BoardShape& shape,
                               std::shared_ptr<SharedMemory> shared, bool first)
    : engine_(&engine),
      memory_(memory),
      options_(std::move(options)),
      elements_(shape.elements),
      board_(std::make_shared<Board>(std::move(shared), shape, engine.rank(), first)),
      pool_(std::make_shared<BufferPool>(memory, shape.buffer_bytes())) {
  const Lock lock(board_->mutex());
  board_->own().process = ProcessId::own();
}

// ------------------------------------------------------------------------------------------------ handing over

std::shared_ptr<Call> BoardAllreduce::contribute(const std::byte* data) {
  engine_->check();
  if (open_flush_) {
    throw std::runtime_error("'" + options_.name + "': a flush ran into its timeout: call flush() again first");
  }
  if (closed_) throw ClosedError("'" + options_.name + "' is closed");
  auto call = std::make_shared<Call>();
  call->made = engine_->transport().now();
  Board& board = *board_;
  Lock lock(board.mutex());
  if (spare_ == kNoBuffer) spare_ = board.take_buffer();
  BufferNumber earlier = options_.late == Options::Late::kAccumulate ? board.own().deposit : kNoBuffer;
  if (earlier != kNoBuffer) board.retain(earlier);  // to read it; a round may take it meanwhile
  lock.unlock();
  memory_.load(elements_, board.data(spare_), data, options_.count);
  bool combined = earlier != kNoBuffer;
  if (combined) {
    memory_.reduce(elements_, options_.op, board.data(spare_), board.data(earlier), options_.count);
    lock.lock();
    combined = board.own().deposit == earlier;
    board.release(earlier);
    if (!combined) {  // a round has taken it: what is handed over now is the new data alone
      lock.unlock();
      memory_.load(elements_, board.data(spare_), data, options_.count);
    }
  }
  if (!lock.owns_lock()) lock.lock();
  hand_over(*call, spare_, combined);
  if (!call->late) {
    pending_.push_back(call);
    if (board.state().phase == Board::Phase::kArmed) arrive();
  }
  run_rounds(lock);  // also a late call may bring what a round is held for
  return call;
}

/// The one atomic step of a contribution: its data changes hands, and the call learns what it waits for.
void BoardAllreduce::hand_over(Call& call, BufferNumber& written, bool combined) {
  Board& board = *board_;
  Board::Place& own = board.own();
  const RoundNumber completed = board.completed();
  promise_kept();
  call.sequence = ++sequence_;
  call.late = completed > accounted_;
  const bool missed_its_round = (call.late || board.state().phase == Board::Phase::kCombining) && !is_held(own);
  if (!(missed_its_round && options_.late == Options::Late::kDrop)) {
    if (!combined) {
      own.handed_over_at = completed;
      own.contributions = 0;
    }
    board.release(own.deposit);
    own.deposit = std::exchange(written, kNoBuffer);
    ++own.contributions;
    own.newest = call.sequence;
    own.fresh_for = call.late ? kNoRound : completed;
  }
  call.round = call.late ? completed - 1 : completed;
  own.promised = call.round;
  if (call.late) {
    call.info = summary(board.newest()).info_for(call.sequence);
    call.done = true;
    accounted_ = completed;
  }
}

/// The round has started and waits for data of this place's rank.
bool BoardAllreduce::is_held(const Board::Place& place) const {
  const Board::State& s = board_->state();
  return s.phase == Board::Phase::kArmed && s.started && options_.max_staleness &&
         place.lacking >= *options_.max_staleness && place.deposit == kNoBuffer;
}

void BoardAllreduce::arrive() {
  board_->arrive(engine_->rank());
  // Grace does not move the initiator: it is the rank whose arrival made the round possible.
  if (board_->state().grace_ends <= 0) board_->state().newest_arrival = engine_->rank();
}

// ------------------------------------------------------------------------------------------------ rounds

/// Whether the policy lets the round start; says who started it.
bool BoardAllreduce::may_start() {
  Board::State& s = board_->state();
  if (s.started) return true;
  const Rank size = engine_->size();
  const RoundNumber round = board_->completed();
  const RankView arrived = board_->arrived();
  const RankView left = board_->left();
  const auto started_by = [&s](Rank rank) {
    s.initiator = rank;
    return s.started = true;
  };
  if (left.count() == size) return started_by(engine_->rank());  // the flush round
  if (arrived.empty()) return false;
  if (!counts_arrivals(options_.policy)) {
    for (Rank r = 0; r < size; ++r) {
      if (arrived.contains(r) && pyc::may_start(options_.policy, round, r, left, size)) return started_by(r);
    }
    return false;
  }
  if (!enough_arrived(options_.policy, round, arrived, left, size)) return false;
  Rank come = 0;
  for (Rank r = 0; r < size; ++r) come += arrived.contains(r) || left.contains(r) ? 1 : 0;
  if (options_.policy.grace <= 0 || come == size) return started_by(s.newest_arrival);
  const Seconds now = engine_->transport().now();
  if (s.grace_ends <= 0) s.grace_ends = now + options_.policy.grace;
  return now >= s.grace_ends && started_by(s.newest_arrival);
}

/// Whether nobody is waited for any more: a round that has started is held for ranks that lack data for too long.
bool BoardAllreduce::may_take() const {
  if (!options_.max_staleness) return true;
  for (Rank r = 0; r < engine_->size(); ++r) {
    if (is_held(board_->place(r)) && !board_->left().contains(r)) return false;
  }
  return true;
}

/// Runs every round that may be run now. Releases the lock while it computes.
void BoardAllreduce::run_rounds(Lock& lock) {
  Board& board = *board_;
  while (board.state().phase == Board::Phase::kArmed && may_start() && may_take()) {
    const Board::Work work = board.begin_round(board.state().initiator);
    if (work.reduction || !work.behind.empty()) {
      lock.unlock();
      board.work(memory_, work);
      lock.lock();
    }
    board.end_round();
  }
}

void BoardAllreduce::leave(Lock& lock, bool for_good) {
  board_->leave(engine_->rank(), for_good);
  run_rounds(lock);
}

std::shared_ptr<Call> BoardAllreduce::start_flush() {
  engine_->check();
  if (open_flush_) return open_flush_;
  if (closed_) throw ClosedError("'" + options_.name + "' is closed");
  auto call = std::make_shared<Call>();
  call->flush = true;
  call->made = engine_->transport().now();
  call->sequence = sequence_;
  open_flush_ = call;
  Lock lock(board_->mutex());
  call->epoch = board_->state().flushes;
  board_->own().flush_waits = true;
  leave(lock, false);
  return call;
}

void BoardAllreduce::close() {
  engine_->check();
  if (closed_.exchange(true)) return;
  Lock lock(board_->mutex());
  leave(lock, true);
}

std::size_t BoardAllreduce::discard() {
  if (!engine_->is_in_own_process()) return 0;  // the parent's, which still has it
  const Lock lock(board_->mutex());
  Board::Place& own = board_->own();
  const std::size_t contributions = own.deposit == kNoBuffer ? 0 : own.contributions;
  board_->release(own.deposit);
  return contributions;
}

void BoardAllreduce::abandon() {
  discard();
  if (!closed_) close();
}

// ------------------------------------------------------------------------------------------------ results

RoundSummary BoardAllreduce::summary(const Board::RecordView& view) const {
  const Board::Share& share = board_->share(view);
  RoundSummary summary;
  summary.info.round = view.record->round;
  summary.info.initiator = view.record->initiator;
  summary.info.contributor_count = view.record->contributors;
  summary.info.contributors.assign(view.members, view.members + board_->words());
  summary.info.active = view.record->active;
  summary.info.staleness = share.staleness;
  summary.newest_included = share.newest_included;
  summary.flush = view.record->flush;
  return summary;
}

/// Calls whose round has completed are done, whether or not anybody looked: what they are told is kept with them.
void BoardAllreduce::promise_kept() {
  Board& board = *board_;
  RoundNumber& promised = board.own().promised;
  if (promised == kNoRound || board.completed() <= promised) return;
  const Board::RecordView* const record = board.record_of(promised);
  if (record == nullptr) throw InternalError("'" + options_.name + "': a promised round was not kept");
  const RoundSummary told = summary(*record);
  for (const std::shared_ptr<Call>& call : pending_) {
    call->info = told.info_for(call->sequence);
    call->done = true;
  }
  pending_.clear();
  accounted_ = std::max(accounted_, promised + 1);
  promised = kNoRound;
}

bool BoardAllreduce::try_finish(Call& call) {
  if (call.given) return true;
  Board& board = *board_;
  if (!call.flush && board.completed() <= call.round) return false;
  Lock lock(board.mutex());
  while (board.own().folding) {  // a round is being added to the total: it takes a copy's time
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  if (call.flush) {
    if (board.state().flushes <= call.epoch) return false;
    const RoundSummary told = summary(board.flush_record());
    call.round = told.info.round;
    call.info = told.info_for(call.sequence);
    board.own().flush_waits = false;
    open_flush_.reset();
  }
  promise_kept();
  Given given = collect(call);
  lock.unlock();
  publish(std::move(given));
  return true;
}

/// Refers to every round up to the call's that the application has not been given.
BoardAllreduce::Given BoardAllreduce::collect(Call& call) {
  Board& board = *board_;
  Board::Place& own = board.own();
  Given given;
  call.done = call.given = true;
  if (call.round < given_) {  // a later call was given it already
    given.nothing_new = true;
    return given;
  }
  const bool sum_mode = options_.missed == Options::Missed::kSum;
  const auto add = [&](const Board::RecordView& view) {
    if (view.record->buffer == kNoBuffer) return;
    board.retain(view.record->buffer);
    given.terms.push_back(
        {view.record->buffer, options_.op == ReduceOp::kAvg ? std::size_t{view.record->contributors} : 1});
  };
  const RoundNumber before = given_;
  const Board::RecordView* of_call = call.flush ? &board.flush_record() : board.record_of(call.round);
  if (of_call == nullptr || own.total.upto > call.round + 1) {
    // Its round was superseded, or added to the total, before anybody looked: it is told of the newest, as a late call.
    of_call = &board.newest();
    call.round = of_call->record->round;
    call.info = summary(*of_call).info_for(call.sequence);
  }
  if (sum_mode) {
    const RoundNumber first = std::max(given_, own.total.upto);
    if (own.total.buffer != kNoBuffer) given.terms.push_back({std::exchange(own.total.buffer, kNoBuffer), 1});
    for (RoundNumber round = first; round <= call.round; ++round) {
      const Board::RecordView* const record = board.record_of(round);
      if (record == nullptr) throw InternalError("round " + std::to_string(round) + " was not kept");
      add(*record);
    }
  } else {
    add(*of_call);
  }
  given_ = call.round + 1;
  own.given = given_;
  accounted_ = std::max(accounted_, given_);
  call.info.missed = given_ - before - 1;
  call.info.overrun = call.info.missed > options_.history;
  if (board.kept().record->round < given_) board.drop_kept();
  if (board.flushed().record->round < given_) board.drop_flushed();
  return given;
}

/// Makes `result_` from what was collected. A single result is looked at where it is; only what must be computed is
/// copied.
void BoardAllreduce::publish(Given given) {
  const bool sum_mode = options_.missed == Options::Missed::kSum;
  if (given.nothing_new && !sum_mode) return;
  Board& board = *board_;
  if (given.terms.size() == 1 && given.terms[0].divisor == 1 && !elements_.widened() &&
      pins_->load(std::memory_order_relaxed) < kMostPins) {
    result_ = pinned(given.terms[0].buffer);
    return;
  }
  BufferRef value = pool_->take();
  std::size_t divisor = 1;
  const std::byte* source = value.data();
  if (given.terms.size() == 1) {
    source = board.data(given.terms[0].buffer);
    divisor = given.terms[0].divisor;
  } else {
    memory_.fill_identity(elements_, options_.op, value.data(), options_.count);
    for (const Given::Term& term : given.terms) {
      memory_.add(elements_, value.data(), board.data(term.buffer), options_.count, term.divisor);
    }
  }
  if (source != value.data() || elements_.widened()) {
    BufferRef narrow = pool_->take();
    memory_.store(elements_, narrow.data(), source, options_.count, divisor);
    value = std::move(narrow);
  }
  if (!given.terms.empty()) {
    const Lock lock(board.mutex());
    for (Given::Term& term : given.terms) board.release(term.buffer);
  }
  const auto reference = std::make_shared<BufferRef>(std::move(value));
  result_ = {reference, reference->data()};
}

/// A view of a buffer of the board; the reference that the caller has goes with it.
std::shared_ptr<const std::byte> BoardAllreduce::pinned(BufferNumber buffer) {
  pins_->fetch_add(1, std::memory_order_relaxed);
  return {board_->data(buffer), [board = board_, pins = pins_, buffer](const std::byte*) mutable {
            try {
              const Lock lock(board->mutex());
              board->release(buffer);
            } catch (const RankFailedError&) {
              return;  // nobody can use the board any more
            }
            pins->fetch_sub(1, std::memory_order_relaxed);
          }};
}

// ------------------------------------------------------------------------------------------------ waiting

/// Does what has become due; whether the call is done.
bool BoardAllreduce::drive(Call& call) {
  if (options_.policy.grace > 0 && !call.given) {
    Lock lock(board_->mutex());
    run_rounds(lock);
  }
  return try_finish(call);
}

bool BoardAllreduce::test(Call& call) {
  engine_->check();
  if (try_finish(call)) return true;
  board_->help(memory_);
  if (engine_->progress() == Progress::kCaller) engine_->advance();
  return drive(call);
}

const RoundInfo& BoardAllreduce::wait(Call& call, Seconds timeout, const Engine::Interrupt& interrupt) {
  engine_->check();
  if (try_finish(call)) return call.info;
  const auto now = [this] { return engine_->transport().now(); };
  const Seconds start = now();
  Seconds next_look = start + kLongestSleep;
  for (int idle = 0;; ++idle) {
    const std::uint32_t rings = board_->bell().rings();  // before looking: a later ring ends the sleep
    if (board_->help(memory_)) idle = 0;
    if (drive(call)) return call.info;
    if (engine_->progress() == Progress::kCaller) engine_->advance();
    const Seconds waited = now() - start;
    if (timeout >= 0 && waited >= timeout) stall(call);
    if (start + waited >= next_look) {
      if (interrupt) interrupt();
      check_alive();
      next_look = now() + kLongestSleep;
    }
    if (idle < kYields) {
      sched_yield();
      continue;
    }
    Seconds limit = timeout >= 0 ? std::min(kLongestSleep, timeout - waited) : kLongestSleep;
    if (options_.policy.grace > 0) limit = std::min(limit, std::max(options_.policy.grace / 4, 1e-4));
    board_->bell().wait(rings, limit);
  }
}

/// RankFailedError if a rank that has not closed is gone.
void BoardAllreduce::check_alive() const {
  std::vector<Rank> gone;
  for (const Rank r : not_closed()) {
    if (state_of(board_->place(r).process) == ProcessState::kGone) gone.push_back(r);
  }
  if (gone.empty()) return;
  throw RankFailedError("'" + options_.name + "': " + list_ranks(gone) + " died; the collective is unusable now");
}

void BoardAllreduce::stall(const Call& call) {
  const Seconds waited = engine_->transport().now() - call.made;
  std::vector<Rank> missing;
  std::vector<Rank> stopped;
  Rank combiner = kNoRank;
  RoundNumber round = call.round;
  {
    const Lock lock(board_->mutex());
    if (call.flush) round = board_->completed();
    combiner = board_->state().combiner;
    for (Rank r = 0; r < engine_->size(); ++r) {
      const bool has_come = board_->left().contains(r) || (!call.flush && board_->arrived().contains(r));
      if (has_come && r != combiner) continue;
      const bool answers = state_of(board_->place(r).process) == ProcessState::kAlive;
      if (!answers) stopped.push_back(r);
      if (answers && combiner == kNoRank) missing.push_back(r);
    }
  }
  std::string text = std::string(call.flush ? "flush of '" : "partial allreduce '") + options_.name + "', round " +
                     std::to_string(round) + ": not complete after " + in_seconds(waited) + ";";
  if (!missing.empty())
    text += (call.flush ? " have not flushed or closed: " : " have not arrived: ") + list_ranks(missing) + ";";
  if (!stopped.empty()) text += " do not answer (stopped or gone): " + list_ranks(stopped) + ";";
  if (missing.empty() && stopped.empty()) text += " every rank has arrived: the round is slow, wait again;";
  text.back() = '.';
  throw StallError(text);
}

std::vector<Rank> BoardAllreduce::not_closed() const {
  std::vector<Rank> ranks;
  const Lock lock(board_->mutex());
  for (Rank r = 0; r < engine_->size(); ++r) {
    if (!board_->closed().contains(r)) ranks.push_back(r);
  }
  return ranks;
}

void BoardAllreduce::on_notice(Rank, ConstBytes) { throw InternalError("a notice for a board"); }

}  // namespace pyc
