#include "services/parameter_server/direct.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <utility>

#include "core/error.h"
#include "services/parameter_server/known.h"

namespace pyc::server {
namespace {

/// The same clock in all processes of the node.
Seconds node_now() {
  return std::chrono::duration<Seconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// At most, in one decision. Each worker may be taken out and make an update due, and there is a push.
std::size_t most_steps(const Layout& layout) { return 2 * layout.workers() + 2; }

constexpr Seconds kLookPeriod = 0.02;
constexpr Seconds kQuiet = 0.05;  // longer than the requester takes to ask again

}  // namespace

Direct::Direct(Engine& engine, Memory& memory, Options options, Update update, const Nodes& nodes)
    : ParameterServer(engine, memory, std::move(options), nodes), update_{std::move(update), {}} {
  if (update_.function) update_.gradient = memory.allocate(options_.count * layout_.wide_bytes());
}

void Direct::start(const std::byte* weights) {
  if (most_steps(layout_) > Pipeline::kTickets) throw std::runtime_error("too many workers for one node's memory");
  if (rank() != layout_.coordinator()) return;
  if (const auto& resumed = options_.resumed) {
    shard().resume(*resumed, weights, options_.count);
  } else {
    shard().start(weights);
  }
}

// ------------------------------------------------------------------------------------------------ decisions

/// Asks the ledger, orders the resulting work, and notifies released workers. Returns nothing if that is not possible
/// now, because a rank is stopped in its turn or very old work is not done. An update function requires an idle
/// pipeline: its work is then done at once, and cannot be interrupted.
std::optional<Direct::Decided> Direct::decide(const std::function<void(Ledger&, Decisions&)>& decide) {
  Decided decided;
  Decisions decisions;
  {
    Pipeline::Turn turn(pipeline(), rank());
    if (!turn || !turn.has_room(most_steps(layout_))) return std::nullopt;
    if (update_.function) {
      const bool is_clear = turn.is_clear();
      pipeline().keep_quiet_until(is_clear ? 0 : node_now() + kQuiet);
      if (!is_clear) return std::nullopt;
    }
    take_out_closed(decisions);
    decide(board_->ledger(), decisions);
    for (Step& step : decisions.steps) place(std::move(step), turn, decided.works);
  }
  for (const Release& release : decisions.releases) {
    const Rank to = options_.workers[release.worker];
    if (to == rank()) decided.goes_on = true;
    notify(to);
  }
  for (const Worker w : decisions.missing) {
    engine_->warn("parameter server '" + name() + "': " + list_ranks({options_.workers[w]}) +
                  " has stopped pushing while others wait: it is left out until it pushes again.");
  }
  return decided;
}

void Direct::place(Step step, Pipeline::Turn& turn, Works& works) {
  const bool turns = step.turn;
  shard().note(step);
  const UpdateCall* const call = update_.function ? &update_ : nullptr;
  if (step.update != 0 || step.use) works.emplace_back(shard(), layout_, std::move(step), turn, call, worker_);
  if (turns) shard().turn();
}

/// A rank that closes the server only sets a flag, because it may be in a hurry. Others take it out.
void Direct::take_out_closed(Decisions& decisions) {
  closings_ = board_->closings();
  if (closings_ == 0) return;
  for (Worker w = 0; w < layout_.workers(); ++w) {
    if (board_->has_closed(options_.workers[w])) board_->ledger().leave(w, node_now(), decisions);
  }
}

/// The rank that releases this worker writes the outcome before `released`.
Outcome Direct::outcome() const {
  const Account& own = account();
  if (own.released.load(std::memory_order_acquire) >= clock_.load()) outcome_ = own.outcome;
  return outcome_;
}

void Direct::suspend(const Limit& limit) {
  check_open();
  std::optional<Decided> decided;
  const auto decide_to_leave = [&] {
    if (!decided && !has_left_) {
      decided = decide([&](Ledger& ledger, Decisions& d) { ledger.leave(worker(), node_now(), d); });
    }
    return decided.has_value();
  };
  wait_for("leave", decide_to_leave, limit, obstacle());
  do_all(std::move(known(decided).works));
}

/// A waiting rank takes out ranks that are missing or have closed the server.
void Direct::look() {
  const Seconds now = node_now();
  if (now < next_look_ && !has_news()) return;
  next_look_ = now + kLookPeriod;
  if (update_.function && !has_news() && !is_overdue(now)) return;  // a turn would keep readers out
  auto decided = decide([&](Ledger& ledger, Decisions& decisions) {
    if (now >= ledger.deadline()) ledger.look(now, decisions);
  });
  if (decided) do_all(std::move(decided->works));
}

bool Direct::is_overdue(Seconds now) {
  const Pipeline::Turn turn(pipeline(), rank());
  return turn && now >= board_->ledger().deadline();
}

// ------------------------------------------------------------------------------------------------ pushes and pulls

void Direct::push_pull(Kind kind, const std::byte* gradient, std::byte* out, const Limit& limit) {
  check_open();
  check_worker();
  wait_for_turn(limit);
  const Seconds begin = track().now();
  const bool has_weights = submit(kind, gradient, out, limit);
  track().add("push", begin, clock_.load());
  if (!has_weights) pull(out, limit);
}

/// Returns whether `out` has the new weights.
bool Direct::submit(Kind kind, const std::byte* gradient, std::byte* out, const Limit& limit) {
  check_whole();
  const std::string what = "push " + std::to_string(clock_.load() + 1);
  std::optional<Decided> decided;
  bool closed = false;
  const auto decide_push = [&] {
    if (decided || has_left_) return decided.has_value();
    decided = decide([&](Ledger& ledger, Decisions& decisions) {
      closed = board_->has_closed(rank());
      if (!closed) ledger.push(worker(), kind, given_.load(), node_now(), decisions);
    });
    return decided.has_value();
  };
  wait_for(what, decide_push, limit, obstacle());
  if (closed) {
    do_all(std::exchange(known(decided).works, {}));
    check_open();
  }
  clock_.store(clock_.load() + 1);
  has_reply_ = is_elastic() && gradient != nullptr;
  Works& works = known(decided).works;
  std::optional<Version> version;  // of the weights in `out`
  for (Work& work : works) {
    if (!work.step().has_gradient()) continue;
    const bool gives = work.step().update != 0 && out != nullptr && known(decided).goes_on;
    work.lend(gradient, gives ? out : nullptr);
    if (gives) version = work.ticket().version;
  }
  if (!finish(what, works, limit) || !version) return false;
  has_reply_ = false;
  given_.store(*version);
  return true;
}

/// In elastic averaging, a worker's averaged weights are in its accumulator after its push.
void Direct::fetch(std::byte* out, const Limit& limit, Version least) {
  check_whole();
  if (has_reply_) {
    wait_for("pull", [this] { return !has_left_; }, limit, obstacle());
    for (std::size_t b = 0; b < pipeline().blocks(); ++b) shard().narrow(b, shard().accumulator(worker()), out);
    return given_.store(outcome().version);
  }
  std::optional<Ticket> ticket;
  const auto enter = [&] {
    const bool may_enter = pipeline().version() >= least && !has_news() && !pipeline().is_quiet(node_now());
    if (!ticket && may_enter) ticket = pipeline().enter(false, rank());
    return ticket.has_value();
  };
  wait_for("pull", enter, limit, obstacle());
  Work reading(shard(), layout_, known(ticket), out);
  try {
    wait_for("pull", [&] { return follow(reading); }, limit, reading.obstacle());
  } catch (...) {
    pipeline().passed_all(known(ticket));  // it stops reading
    throw;
  }
  given_.store(known(ticket).version);
}

// ------------------------------------------------------------------------------------------------ work on the weights

/// Works on at most `most` blocks. An exception during an update leaves inconsistent weights, which no rank may use.
bool Direct::proceed(Work& work, std::size_t most) {
  const std::lock_guard lock(hands_);
  try {
    return work.advance(most);
  } catch (...) {
    if (!work.reads()) pipeline().break_by(rank());
    throw;
  }
}

/// Follows earlier work until it stalls, at most 20 ms, so that time limits and Ctrl-C take effect. Waiting for each
/// stride as for a message, with all that an engine polls, would take longer than the strides themselves. Once this
/// makes progress, another thread drives the engine.
bool Direct::follow(Work& work) {
  constexpr Seconds kSoon = 5e-4;
  constexpr Seconds kLongest = 0.02;
  std::optional<Engine::Away> away;
  bool has_slept = false;
  for (const Seconds end = node_now() + kLongest; node_now() < end;) {
    const std::size_t before = work.blocks_done();
    if (proceed(work, kBlocksAtOnce)) return true;
    if (work.blocks_done() != before) {
      has_slept = false;
      if (!away) away.emplace(*engine_);
    } else if (has_slept) {
      return false;
    } else {
      work.sleep(kSoon);
      has_slept = true;
    }
  }
  return false;
}

/// Does the work of a decision, in order. If that is interrupted or times out, the engine does the rest later. Returns
/// false after a timeout.
bool Direct::finish(const std::string& what, Works& works, const Limit& limit) {
  if (update_.function) {
    call(works);
    return true;
  }
  try {
    for (; !works.empty(); works.pop_front()) {
      Work& work = works.front();
      wait_for(what, [&] { return follow(work); }, limit, work.obstacle());
    }
  } catch (const StallError&) {
    leave_to_engine(std::move(works));
    return false;
  } catch (...) {
    leave_to_engine(std::move(works));
    throw;
  }
  return true;
}

/// `finish` for an update function, which this thread must call. The pipeline is idle, as `decide` requires.
void Direct::call(Works& works) {
  const Engine::Away away(*engine_);  // the function may take seconds
  std::exception_ptr error;
  for (; !works.empty(); works.pop_front()) {
    Work& work = works.front();
    if (!proceed(work, pipeline().blocks())) {
      pipeline().break_by(rank());
      throw InternalError("'" + name() + "': somebody works on weights that a function is to change");
    }
    if (work.error()) error = work.error();
  }
  if (error) std::rethrow_exception(error);
}

void Direct::do_all(Works works) {
  if (update_.function) {
    call(works);
  } else {
    leave_to_engine(std::move(works));
  }
}

void Direct::leave_to_engine(Works works) {
  if (works.empty()) return;
  {
    const std::lock_guard lock(hands_);
    for (Work& work : works) work.leave();
  }
  engine_->exclusively([&] {
    for (Work& work : works) left_.push_back(std::move(work));
    has_left_ = true;
  });
  engine_->advance();
  engine_->wake();
}

bool Direct::advance() {
  if (left_.empty()) return false;
  const std::unique_lock lock(hands_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  Work& work = left_.front();
  const std::size_t before = work.blocks_done();
  try {
    if (!work.advance(kBlocksAtOnce)) return work.blocks_done() != before;
    left_.pop_front();
  } catch (const std::exception&) {
    pipeline().break_by(rank());
  }
  if (pipeline().broken() != kNoRank) left_.clear();
  has_left_ = !left_.empty();
  return true;
}

void Direct::check_whole() const {
  const Rank by = pipeline().broken();
  if (by == kNoRank) return;
  check_alive();
  throw std::runtime_error("'" + name() + "': " + list_ranks({by}) +
                           " was interrupted in the middle of an update: the weights are unusable");
}

// ------------------------------------------------------------------------------------------------ waiting

Obstacle Direct::obstacle() const {
  return {[this] {
            const auto holder = pipeline().holder();
            return holder ? holder : pipeline().slowest();
          },
          {}};
}

void Direct::attend() {
  check_whole();
  look();
}

std::optional<std::vector<Rank>> Direct::awaited(const Limit&) {
  const Pipeline::Turn turn(pipeline(), rank());
  std::vector<Rank> ranks;
  if (!turn) {
    if (const auto holder = pipeline().holder()) ranks.push_back(*holder);
    return ranks;
  }
  for (const Worker w : board_->ledger().awaited()) ranks.push_back(options_.workers[w]);
  return ranks;
}

std::vector<std::byte> Direct::counts(const Limit& limit) {
  check_open();
  std::optional<std::vector<std::byte>> counts;
  const auto copy = [&] {
    if (counts || has_news()) return counts.has_value();
    const Pipeline::Turn turn(pipeline(), rank());
    if (!turn) return false;
    const auto all = board_->ledger().memory();
    counts.emplace(all.begin(), all.end());
    return true;
  };
  wait_for("statistics", copy, limit, obstacle());
  return std::move(known(counts));
}

void Direct::receive(Rank, ConstBytes) { throw InternalError("a message for a server, where there is none"); }

std::vector<Rank> Direct::not_closed() const {
  std::vector<Rank> ranks;
  for (Rank r = 0; r < engine_->size(); ++r) {
    if (!board_->has_closed(r)) ranks.push_back(r);
  }
  return ranks;
}

}  // namespace pyc::server
