#include "engine/engine.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <iomanip>
#include <optional>
#include <sstream>
#include <utility>

#include "core/at_end.h"
#include "core/error.h"
#include "core/hot.h"
#include "diagnostics/flight_dump.h"
#include "engine/progress_thread.h"

namespace pyc {
namespace {

constexpr Seconds kInterruptPeriod = 0.05;
constexpr Seconds kNoticeDelay = 3;    // ranks raise the same error at different times
constexpr Seconds kLookPeriod = 0.25;  // between checks for dead ranks: a system call for each rank of this machine

/// How often this process or an ancestor was made by fork: identifies a child without a system call.
std::atomic<unsigned>& forks() {
  static std::atomic<unsigned> count{0};
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++count; });
  static_cast<void>(registered);
  return count;
}

void stop_driving(std::atomic<int>& count) {
  if (--count == 0) ProgressThread::instance().take_over();
}

}  // namespace

Engine::Away::Away(Engine& engine) : engine_(engine) { stop_driving(engine_.waiters_); }
Engine::Away::~Away() { ++engine_.waiters_; }

Engine::Engine(std::unique_ptr<Transport> transport, Options options, std::unique_ptr<Trace> trace)
    : transport_(std::move(transport)),
      rank_(transport_->rank()),
      progress_(options.progress),
      transport_name_(std::move(options.transport_name)),
      trace_(std::move(trace)),
      recorder_(*transport_, options.flight_rounds, trace_.get()),
      failures_(*transport_, std::move(options.neighbours)),
      stall_warning_(options.stall_warning),
      runs_{nullptr},
      bootstrap_(rank(), size(), [this](Rank to, ConstBytes message) { send(to, message); }),
      roll_call_(rank(), size(), [this](Rank to, ConstBytes message) { send(to, message); }),
      heartbeat_(rank(), [this](Rank to, ConstBytes message) { send(to, message); }),
      shutdown_(
          rank(), size(), [this](Rank to, ConstBytes message) { transport_->send_active(to, message); },
          [this] { return Shutdown::Traffic{transport_->active_sent() - shutdown_.sent(), received_}; }),
      forks_(forks()) {
  recorder_.set_group(std::move(options.group));
  if (progress_ == Progress::kThread) ProgressThread::instance().add(this);
  if (recorder_.on()) FlightDump::instance().add(&recorder_);
}

Engine::~Engine() {
  FlightDump::instance().remove(&recorder_);
  if (progress_ == Progress::kThread && !closed_ && is_in_own_process()) ProgressThread::instance().remove(this);
}

PYC_HOT bool Engine::is_in_own_process() const { return forks().load(std::memory_order_relaxed) == forks_; }

PYC_HOT void Engine::check_process() const {
  if (!is_in_own_process()) {
    throw ClosedError("this process is a fork: the communicator belongs to its parent");
  }
}

void Engine::check_can_start() const {
  if (closed_) throw ClosedError("the communicator is closed: by close() or by MPI_Finalize");
  if (failed_) throw_failure();
  if (leaves_) throw ClosedError("this rank has closed the communicator, or is closing it");
}

void Engine::check_next_id() const {
  for (const auto& [id, collective] : by_id_) {
    if (first_tag(id) == first_tag(next_collective_)) {
      throw std::runtime_error("'" + collective->name() + "' is still open and " + std::to_string(kTurns) +
                               " collectives were created since: close some");
    }
  }
}

std::uint32_t Engine::claim_id() {
  check_can_start();
  check_next_id();
  return next_collective_;
}

void Engine::enroll(std::uint32_t id, std::shared_ptr<Collective> collective, const std::function<void()>& give) {
  Collective& made = *collective;
  collectives_.push_back(std::move(collective));
  try {
    if (id != kUncreated) next_collective_ = id + 1;
    by_id_[id] = &made;
    recorder_.opened(id, made.name());
    give();
    if (made.in_background()) in_background_ = true;
    const auto mine = std::stable_partition(early_.begin(), early_.end(), [id](const auto& early) {
      return read_front<MessageHeader>(early.second).collective != id;
    });
    for (auto it = mine; it != early_.end(); ++it) made.on_message(it->first, it->second);
    early_.erase(mine, early_.end());
  } catch (...) {
    give_up_on(id);
    throw_failure();
  }
}

/// Called after an exception at the start of a collective. The collective is notified of the failure and not called
/// again. Its memory is kept, because messages may still be written to it.
void Engine::give_up_on(std::uint32_t id) {
  try {
    send_departures(Control::kLeft);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no message goes out any more
  }
  fail_by_current_exception();
  unbegun_ = std::move(collectives_.back());
  collectives_.pop_back();
  by_id_.erase(id);
}

std::vector<std::string> Engine::open_collectives() {
  return exclusively([this] {
    std::vector<std::string> names;
    for (const auto& collective : collectives_) names.push_back(collective->name());
    return names;
  });
}

std::optional<std::uint32_t> Engine::waits_in(Rank rank, const Collective* other_than) const {
  for (const auto& [id, collective] : by_id_) {
    if (collective != other_than && collective->has_waiting(rank)) return id;
  }
  return std::nullopt;
}

void Engine::warn(const std::string& text) const {
  const std::string line = "pycollectives: rank " + std::to_string(rank()) + " of " + std::to_string(size()) + ": " +
                           text + " `python -m pycollectives dump` shows what every rank waits for.\n";
  std::fputs(line.c_str(), stderr);
}

std::string Engine::name_of(std::uint32_t id) {
  if (id == kUncreated) return "preduce, or mean of the communicator";
  return exclusively([&] {
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? std::string() : found->second->name();
  });
}

std::uint32_t Engine::reserve_run() {
  runs_.push_back(nullptr);
  return static_cast<std::uint32_t>(runs_.size() - 1);
}

void Engine::wake() {
  if (progress_ == Progress::kThread) ProgressThread::instance().wake();
}

bool Engine::advance() {
  if (!is_in_own_process() || wanted_.load(std::memory_order_relaxed) > 0) return false;
  const std::unique_lock lock(progress_mutex_, std::try_to_lock);
  if (!lock.owns_lock() || failed_.load(std::memory_order_relaxed) || closed_) return false;
  try {
    return pass();
  } catch (...) {
    fail_by_current_exception();
  }
  return true;
}

void Engine::fail_by_current_exception() {
  try {
    throw;
  } catch (const RankFailedError& error) {
    fail(error.ranks().empty() ? seen_death(std::current_exception()) : std::current_exception());
  } catch (const TransportError&) {  // an MPI need not report that a death is the cause
    fail(seen_death(std::current_exception()));
  } catch (...) {
    fail(std::current_exception());
  }
}

void Engine::fail(std::exception_ptr error) {
  if (heartbeat_.on()) tell_other_machines(error);
  error_ = std::move(error);
  failed_.store(true, std::memory_order_release);
  print_notice();
  for (const auto& collective : collectives_) collective->on_engine_failure(error_);
}

/// A transport that reports a death need not name the dead rank.
std::exception_ptr Engine::seen_death(std::exception_ptr reported) const {
  const std::vector<Rank> dead = failures_.dead();
  if (!dead.empty()) return std::make_exception_ptr(died("", dead, "the communicator is unusable now"));
  try {
    for (const auto& collective : collectives_) collective->name_the_dead();
  } catch (const RankFailedError&) {
    return std::current_exception();
  }
  return reported;
}

/// For threads that wait, because an MPI may never report a death. Until this rank is silent, the shutdown cannot have
/// ended on another rank, so a process that is gone has died.
void Engine::look_for_the_dead() {
  exclusively_if_free([this] {  // MPI may be called, so no thread may free the communicator
    if (failed_ || closed_ || shutdown_.is_silent()) return;
    const std::vector<Rank> dead = failures_.dead_neighbours();
    if (!dead.empty()) fail(std::make_exception_ptr(died("", dead, "the communicator is unusable now")));
  });
}

void Engine::stop(const std::vector<Rank>& failed) {
  exclusively([&] {
    if (!failed_) fail(std::make_exception_ptr(died("", failed, "the communicator is unusable now")));
  });
}

namespace {

RankFailedError stopped_by(Rank rank) {
  return RankFailedError("rank " + std::to_string(rank) + " has stopped the communicator on all ranks", {});
}

}  // namespace

void Engine::stop_all() {
  exclusively([&] {
    if (failed_) return;
    try {
      send_departures(Control::kStop);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): a rank has died, which all will find
    }
    fail(std::make_exception_ptr(stopped_by(rank())));
  });
}

void Engine::start_heartbeat(std::vector<int> machines, Seconds limit) {
  exclusively([&] { heartbeat_.start(std::move(machines), limit, transport_->now()); });
}

/// This engine sends nothing more, and other machines would take its machine for lost.
void Engine::tell_other_machines(const std::exception_ptr& error) {
  std::vector<Rank> dead;
  try {
    std::rethrow_exception(error);
  } catch (const RankFailedError& failed) {
    dead = failed.ranks();
  } catch (...) {
    return;
  }
  if (dead.empty() || !failures_.is_lowest_here()) return;
  try {
    heartbeat_.speak(dead);
  } catch (const std::exception&) {
    return;  // messages can no longer be sent
  }
}

void Engine::speak_to_other_machines(Seconds now) {
  if (heartbeat_.is_due(now) && failures_.is_lowest_here()) heartbeat_.speak(failures_.dead_neighbours());
}

/// Call it after `poll`, so that heartbeats that have arrived count.
void Engine::look_at_other_machines() {
  if (shutdown_.is_silent()) return;
  const Seconds now = transport_->now();
  speak_to_other_machines(now);
  if (const std::vector<Rank> dead = heartbeat_.dead(); !dead.empty()) {
    throw died("", dead, "the communicator is unusable now");
  }
  if (shutdown_.closed()) return;  // others may rightly be silent, since they learn first that all have closed
  const std::vector<Rank> lost = heartbeat_.lost(now);
  if (lost.empty()) return;
  throw RankFailedError("nothing was heard from the machines of " + list_ranks(lost) + " for " +
                            in_seconds(heartbeat_.limit()) +
                            " (PYC_HEARTBEAT_TIMEOUT): lost, cut off or stopped; the communicator is unusable now",
                        lost);
}

bool Engine::pass() {
  if (!std::all_of(collectives_.begin(), collectives_.end(), [](const auto& c) { return c->can_advance(); })) {
    if (heartbeat_.on() && !shutdown_.is_silent()) speak_to_other_machines(transport_->now());
    return false;
  }
  bool moved = false;
  bool busy = false;
  std::vector<const Collective*> ended;       // read once, because another process may end one at any moment
  bool background = leaves_ && !may_close();  // others ask this rank, or close through it
  for (const auto& collective : collectives_) {
    moved = collective->advance() || moved;
    busy = busy || collective->busy();
    if (collective->finished()) ended.push_back(collective.get());
    background = background || collective->in_background();
  }
  busy_.store(busy, std::memory_order_relaxed);
  in_background_.store(background, std::memory_order_relaxed);
  if (!ended.empty()) forget(ended);
  if (aborted_ && collectives_.empty()) shutdown_.close();  // no call of close follows here: let the other ranks close
  moved = shutdown_.advance() || moved;
  moved = transport_->poll(*this) || moved;
  if (heartbeat_.on()) look_at_other_machines();
  if (notice_ && !notice_->settled && transport_->now() - notice_->received >= kNoticeDelay) print_notice();
  return bootstrap_.advance() || moved;
}

void Engine::forget(const std::vector<const Collective*>& ended) {
  const auto is_one = [&ended](const Collective* c) { return std::find(ended.begin(), ended.end(), c) != ended.end(); };
  std::erase_if(by_id_, [&](const auto& entry) {
    if (!is_one(entry.second)) return false;
    recorder_.ended(entry.first);
    return true;
  });
  std::erase_if(collectives_, [&](const auto& collective) { return is_one(collective.get()); });
}

Seconds Engine::deadline() const {
  Seconds next = Collective::kNever;
  for (const auto& collective : collectives_) next = std::min(next, collective->deadline());
  return next;
}

PYC_HOT void Engine::check() {
  check_process();
  if (failed_.load(std::memory_order_acquire)) throw_failure();
}

/// Also names ranks that have died since, if MPI knows them: a process may have ended because of the first death.
void Engine::throw_failure() const {
  try {
    std::rethrow_exception(error_);
  } catch (const RankFailedError& first) {
    const std::optional<std::vector<Rank>> known = transport_->failed_ranks();
    std::vector<Rank> since;
    for (const Rank rank : known.value_or(std::vector<Rank>())) {
      if (std::find(first.ranks().begin(), first.ranks().end(), rank) == first.ranks().end()) since.push_back(rank);
    }
    if (since.empty()) throw;
    std::vector<Rank> all(first.ranks().begin(), first.ranks().end());
    all.insert(all.end(), since.begin(), since.end());
    std::sort(all.begin(), all.end());
    throw RankFailedError(first.what() + ("; since then " + list_ranks(since) + " died, or ended early"), all);
  }
}

bool Engine::wait(const std::function<bool()>& done, Seconds timeout, const Interrupt& interrupt,
                  const Backoff::Sleep& sleep) {
  if (done()) return true;
  ++waiters_;
  const AtEnd stops([this] { stop_driving(waiters_); });
  const Seconds start = transport_->now();
  Seconds next_interrupt = start + kInterruptPeriod;
  Seconds next_look = start + kLookPeriod;
  Backoff backoff(transport_->local_ranks());
  for (;;) {
    const bool moved = advance();
    if (done()) return true;
    check();
    if (closed_) throw ClosedError("the communicator was closed while a call waited");
    const Seconds now = transport_->now();
    if (timeout >= 0 && now - start >= timeout) return false;
    if (interrupt && now >= next_interrupt) {
      const Away away(*this);  // `interrupt` may block, on the GIL or in a signal handler
      interrupt();
      next_interrupt = transport_->now() + kInterruptPeriod;
    }
    if (now >= next_look) {
      look_for_the_dead();
      next_look = transport_->now() + kLookPeriod;
    }
    if (moved) {
      backoff.reset();
    } else {
      backoff.pause(busy(), sleep);
    }
  }
}

void Engine::on_sent(Cookie cookie) {
  Run& run = *runs_[static_cast<std::uint32_t>(cookie >> 32)];
  run.on_sent(OpId(static_cast<std::uint32_t>(cookie)));
  run.pump();
}

void Engine::on_received(Cookie cookie, ConstBytes header, bool has_payload) {
  Run& run = *runs_[static_cast<std::uint32_t>(cookie >> 32)];
  run.on_received(OpId(static_cast<std::uint32_t>(cookie)), header, has_payload);
  run.pump();
}

void Engine::on_message(Rank from, ConstBytes message) {
  const auto header = read_front<MessageHeader>(message);
  if (header.collective == 0) return on_control(from, static_cast<Control>(header.kind), message);
  ++received_;
  if (header.collective == kUncreated && explicit_partners_.insert(from) && leaves_) {
    send_departure(Control::kLeft, from);
  }
  if (const auto found = by_id_.find(header.collective); found != by_id_.end()) {
    found->second->on_message(from, message);
  } else if (header.collective >= next_collective_) {
    early_.emplace_back(from, std::vector<std::byte>(message.begin(), message.end()));
  }  // otherwise it has ended, and no rank depends on the message
}

void Engine::on_control(Rank from, Control kind, ConstBytes message) {
  if (kind >= Control::kClosed && kind <= Control::kEnd) return shutdown_.on_message(kind, message);
  ++received_;
  switch (kind) {
    case Control::kInquiry:
      return roll_call_.on_inquiry(from, message, {bootstrap_.steps(), shutdown_.closed()});
    case Control::kAnswer:
      return roll_call_.on_answer(from, message);
    case Control::kHeartbeat:
      return heartbeat_.on_message(from, message, transport_->now());
    case Control::kGaveUp:
      read<Departure>(message);
      if (!std::binary_search(gave_up_.begin(), gave_up_.end(), from)) {
        gave_up_.insert(std::lower_bound(gave_up_.begin(), gave_up_.end(), from), from);
      }
      return;
    case Control::kLeft:
      if (left_.insert(from)) departed_.push_back({from, read<Departure>(message).steps});
      return;
    case Control::kNotice:
      return on_notice(from, message);
    case Control::kStop:
      throw stopped_by(from);
    default:
      return bootstrap_.on_message(from, kind, message);
  }
}

/// Keeps the first notice only, so an error that reaches all ranks prints at most one line on each.
void Engine::on_notice(Rank from, ConstBytes message) {
  if (notice_ || announced_) return;
  const ConstBytes text = message.subspan(sizeof(MessageHeader));
  notice_ = {.from = from,
             .text = std::string(reinterpret_cast<const char*>(text.data()), text.size()),
             .received = transport_->now()};
}

void Engine::print_notice() {
  if (!notice_ || std::exchange(notice_->settled, true)) return;
  const std::string line = "pycollectives: rank " + std::to_string(rank()) + " of " + std::to_string(size()) +
                           ": rank " + std::to_string(notice_->from) + " " + notice_->text +
                           "; the others continue without it\n";
  std::fputs(line.c_str(), stderr);
}

RankFailedError died(const std::string& what, const std::vector<Rank>& ranks, const std::string& then) {
  return RankFailedError((what.empty() ? what : what + ": ") + list_ranks(ranks) + " died; " + then, ranks);
}

std::string in_seconds(Seconds duration) {
  std::ostringstream text;
  text << std::setprecision(3) << duration << " s";
  return text.str();
}

std::string list_ranks(const std::vector<Rank>& ranks) {
  if (ranks.empty()) return "no rank";
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    if (last > i) text += (last == i + 1 ? ", " : "-") + std::to_string(ranks[last]);
    i = last;
  }
  return text;
}

}  // namespace pyc
