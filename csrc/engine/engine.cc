#include "engine/engine.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <iomanip>
#include <span>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "diagnostics/flight_dump.h"
#include "engine/progress_thread.h"
#include "hot/hot.h"

namespace pyc {
namespace {

constexpr Seconds kInterruptPeriod = 0.05;
constexpr Seconds kArrivalTime = 0.1;
constexpr Seconds kAnswerTime = 0.5;  // an engine answers by itself

/// How often this process or an ancestor was made by fork: tells a child apart without a system call.
std::atomic<unsigned>& forks() {
  static std::atomic<unsigned> count{0};
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++count; });
  static_cast<void>(registered);
  return count;
}

/// Counts a thread that drives the engine while it waits, or takes it out of the count again for a while.
struct Waiting {
  explicit Waiting(std::atomic<int>& c) : count(c) { ++count; }
  ~Waiting() { --count; }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  std::atomic<int>& count;
};
struct Away {
  explicit Away(std::atomic<int>& c) : count(c) { --count; }
  ~Away() { ++count; }
  Away(const Away&) = delete;
  Away& operator=(const Away&) = delete;
  std::atomic<int>& count;
};

}  // namespace

Engine::Engine(std::unique_ptr<Transport> transport, Progress progress, std::string transport_name,
               std::unique_ptr<Trace> trace, std::size_t flight_rounds)
    : transport_(std::move(transport)),
      progress_(progress),
      transport_name_(std::move(transport_name)),
      trace_(std::move(trace)),
      recorder_(*transport_, flight_rounds),
      runs_{nullptr},
      bootstrap_(rank(), size(), [this](Rank to, ConstBytes message) { send(to, message); }),
      roll_call_(rank(), size(), [this](Rank to, ConstBytes message) { send(to, message); }),
      shutdown_(
          rank(), size(), [this](Rank to, ConstBytes message) { transport_->notify(to, message); },
          [this] { return Shutdown::Traffic{transport_->notices_sent() - shutdown_.sent(), received_}; }),
      forks_(forks()) {
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

void Engine::add_to(Footprint& footprint) const {
  footprint.add(this, 1);  // its virtual table, and next to it the transport
  footprint.add(transport_.get(), 1);
  footprint.add(&recorder_);
  footprint.add(&closed_, reinterpret_cast<std::uintptr_t>(this + 1) - reinterpret_cast<std::uintptr_t>(&closed_));
}

std::uint32_t Engine::claim_place() {
  if (closed_) throw ClosedError("the communicator is closed: by close() or by MPI_Finalize");
  for (const auto& [id, collective] : by_id_) {
    if (first_tag(id) == first_tag(next_collective_)) {
      throw std::runtime_error("'" + collective->name() + "' is still open and " + std::to_string(kTurns) +
                               " collectives were created since: close some");
    }
  }
  return next_collective_;
}

void Engine::enroll(std::uint32_t id, std::shared_ptr<Collective> collective) {
  if (id != kExplicitGroups) next_collective_ = id + 1;
  by_id_[id] = collective.get();
  recorder_.opened(id, collective->name());
  if (collective->in_background()) in_background_ = true;
  collectives_.push_back(std::move(collective));
  const auto mine = std::stable_partition(early_.begin(), early_.end(), [id](const auto& early) {
    NoticeHeader header;
    std::memcpy(&header, early.second.data(), sizeof header);
    return header.collective != id;
  });
  for (auto it = mine; it != early_.end(); ++it) by_id_[id]->on_notice(it->first, it->second);
  early_.erase(mine, early_.end());
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

std::string Engine::name_of(std::uint32_t id) {
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
  if (!is_in_own_process()) return false;
  const std::unique_lock lock(progress_mutex_, std::try_to_lock);
  if (!lock.owns_lock() || failed_.load(std::memory_order_relaxed) || closed_) return false;
  try {
    return pass();
  } catch (const RankFailedError&) {
    fail(seen_death(std::current_exception()));
  } catch (...) {
    fail(std::current_exception());
  }
  return true;
}

void Engine::fail(std::exception_ptr error) {
  error_ = std::move(error);
  failed_.store(true, std::memory_order_release);
  for (const auto& collective : collectives_) collective->on_engine_failure(error_);
}

/// What a transport says of a death need not name who died; ranks that share memory see each other.
std::exception_ptr Engine::seen_death(std::exception_ptr said) const {
  try {
    for (const auto& collective : collectives_) collective->name_the_dead();
  } catch (const RankFailedError&) {
    return std::current_exception();
  }
  return said;
}

bool Engine::pass() {
  bool moved = false;
  bool busy = false;
  std::vector<const Collective*> ended;  // looked at once: another process may end one at any moment
  bool background = abandoned_ || (said_left_ && !shutdown_.ended());  // others ask this rank, or close through it
  for (const auto& collective : collectives_) {
    moved = collective->advance() || moved;
    busy = busy || collective->busy();
    if (collective->finished()) ended.push_back(collective.get());
    background = background || collective->in_background();
  }
  busy_.store(busy, std::memory_order_relaxed);
  in_background_.store(background, std::memory_order_relaxed);
  if (!ended.empty()) forget(ended);
  if (abandoned_ && collectives_.empty()) shutdown_.close();  // nobody will call close here: let the others close
  moved = shutdown_.advance() || moved;
  return transport_->poll(*this) || moved;
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
  if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(error_);
}

bool Engine::wait(const std::function<bool()>& done, Seconds timeout, const Interrupt& interrupt,
                  const Backoff::Sleep& sleep) {
  if (done()) return true;
  const Waiting waiting(waiters_);
  const Seconds start = transport_->now();
  Seconds next_interrupt = start + kInterruptPeriod;
  Backoff backoff(transport_->local_ranks());
  for (;;) {
    const bool moved = advance();
    if (done()) return true;
    check();
    if (closed_) throw ClosedError("the communicator was closed while a call waited");
    const Seconds now = transport_->now();
    if (timeout >= 0 && now - start >= timeout) return false;
    if (interrupt && now >= next_interrupt) {
      const Away away(waiters_);  // it may block, on the GIL or in a signal handler: the progress thread takes over
      interrupt();
      next_interrupt = transport_->now() + kInterruptPeriod;
    }
    if (moved) {
      backoff.reset();
    } else {
      backoff.pause(busy(), sleep);
    }
  }
}

// ------------------------------------------------------------------------------------------------ bootstrap

Engine::Texts Engine::compare(const std::string& text, const std::string& what, Seconds timeout,
                              const Interrupt& interrupt) {
  exclusively([&] { start_comparison(text); });
  finish_step({}, what, timeout, interrupt);
  return exclusively([this] { return bootstrap_.texts(); });
}

std::string Engine::hand_down(const std::string& text, const std::vector<Rank>& members, const std::string& what,
                              Seconds timeout, const Interrupt& interrupt) {
  exclusively([&] { start_hand_down(text, members); });
  finish_step(members, what, timeout, interrupt);
  return exclusively([this] { return bootstrap_.handed_down(); });
}

void Engine::start_comparison(std::string text) {
  if (text.size() > Bootstrap::kMaxText) {
    throw std::invalid_argument("compare: at most 4096 bytes, got " + std::to_string(text.size()));
  }
  begin_step();
  bootstrap_.compare(std::move(text));
}

std::optional<Engine::Texts> Engine::finished_comparison() {
  if (!in_step_ || !bootstrap_.done()) return std::nullopt;
  in_step_ = false;
  return bootstrap_.texts();
}

void Engine::start_hand_down(std::string text, const std::vector<Rank>& members) {
  begin_step();
  bootstrap_.hand_down(std::move(text), members);
}

std::optional<std::string> Engine::finished_hand_down() {
  if (!in_step_ || !bootstrap_.done()) return std::nullopt;
  in_step_ = false;
  return bootstrap_.handed_down();
}

void Engine::begin_step() {
  if (closed_ || shutdown_.closed()) throw ClosedError("the communicator is closed: by close() or by MPI_Finalize");
  if (in_step_) throw ClosedError("the communicator is unusable: an earlier collective call on it did not complete");
  in_step_ = true;
}

/// `members`: whom the step needs; empty: all ranks.
void Engine::finish_step(const std::vector<Rank>& members, const std::string& what, Seconds timeout,
                         const Interrupt& interrupt) {
  const FlightRecorder::Waiting waiting(recorder_, 0, what);
  const std::uint64_t step = exclusively([this] { return bootstrap_.steps(); });
  // Once somebody has given up nothing can come of it: others who do so too are to be named as well.
  Seconds hopeless_since = Collective::kNever;
  const auto done = [&] {
    return exclusively([&] {
      if (!gave_up_.empty()) hopeless_since = std::min(hopeless_since, transport_->now());
      return bootstrap_.done() || !left_before(step).empty() || transport_->now() - hopeless_since > kArrivalTime;
    });
  };
  const Seconds start = transport_->now();
  bool has_ended = false;
  try {
    has_ended = wait(done, timeout, interrupt);
  } catch (...) {  // Ctrl-C, or the engine failed
    give_up();
    throw;
  }
  const bool complete = exclusively([this] {
    const bool all_well = bootstrap_.done() && gave_up_.empty();
    if (all_well) in_step_ = false;
    return all_well;
  });
  if (complete) return;
  // What is to be made exists on every rank or is of no use on any.
  const Seconds waited = transport_->now() - start;
  if (!has_ended) give_up();
  std::vector<Rank> missing = call_roll(step, interrupt);
  exclusively([&] {
    const std::vector<Rank> left = left_before(step);
    std::erase_if(missing, [&](Rank rank) {
      return std::find(left.begin(), left.end(), rank) != left.end() ||
             std::binary_search(gave_up_.begin(), gave_up_.end(), rank) ||
             (!members.empty() && !std::binary_search(members.begin(), members.end(), rank));
    });
    std::string text;
    const auto add = [&text](const std::string& reason) { text += (text.empty() ? " " : ", ") + reason; };
    if (!missing.empty()) {
      add(list_ranks(missing) + " did not call it within " + in_seconds(waited) + " (it is collective)");
    }
    if (!gave_up_.empty()) add(list_ranks(gave_up_) + " gave up waiting");
    if (!left.empty()) add(list_ranks(left) + " left the communicator");
    if (text.empty()) add("every rank has called it, but not heard of all others within " + in_seconds(waited));
    throw StallError(what + ":" + text + "; the communicator is unusable now");
  });
}

/// Ranks that come to no such step any more, ascending.
std::vector<Rank> Engine::left_before(std::uint64_t step) const {
  std::vector<Rank> ranks;
  for (const Departed& each : departed_) {
    if (each.steps < step) ranks.push_back(each.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

/// Who has not begun a step of the bootstrap, or, with step 0, has not closed.
std::vector<Rank> Engine::call_roll(std::uint64_t step, const Interrupt& interrupt) {
  exclusively([&] { roll_call_.ask(step); });
  const auto answered = [this] {
    return exclusively([this] { return roll_call_.all_answered() || shutdown_.is_silent(); });
  };
  wait(answered, kAnswerTime, interrupt);
  return exclusively([this] { return roll_call_.missing(); });
}

/// Tells the others that what they make together will not be complete.
void Engine::give_up() {
  if (!is_in_own_process() || failed_ || closed_) return;
  exclusively([this] { tell_all(Control::kGaveUp); });
}

std::vector<Rank> Engine::gave_up() {
  return exclusively([this] { return gave_up_; });
}

// ------------------------------------------------------------------------------------------------ shutdown

void Engine::close(Seconds timeout, const Interrupt& interrupt) {
  if (closed_) return;
  const FlightRecorder::Waiting waiting(recorder_, 0, "closing");
  const Seconds start = transport_->now();
  const auto remaining = [&] { return timeout < 0 ? timeout : std::max(0.0, timeout - (transport_->now() - start)); };
  exclusively([this] { leave(); });
  const auto retired = [this] { return exclusively([this] { return collectives_.empty(); }); };
  if (!wait(retired, remaining(), interrupt)) {
    wake();
    throw StallError(exclusively([this] {
      std::string text = "closing the communicator:";
      for (const auto& collective : collectives_) {
        text += " '" + collective->name() + "' is not closed on " + list_ranks(collective->not_closed()) + ";";
      }
      return text + " every rank must close (or leave) it";
    }));
  }
  exclusively([this] { shutdown_.close(); });
  if (!wait([this] { return exclusively([this] { return may_close(); }); }, remaining(), interrupt)) {
    const std::vector<Rank> missing = call_roll(0, interrupt);
    wake();
    throw StallError(missing.empty()
                         ? "closing the communicator: every rank has closed it, but messages are still on their way"
                         : "closing the communicator: not closed on " + list_ranks(missing) +
                               "; every rank must close (or leave) it");
  }
  exclusively([this] { closed_ = true; });  // no pass is under way, and none starts any more
  if (progress_ == Progress::kThread) ProgressThread::instance().remove(this);
  FlightDump::instance().remove(&recorder_);
  transport_->close();
  if (trace_) trace_->write();
}

void Engine::start_close() {
  leave();
  shutdown_.close();
}

bool Engine::may_close() { return shutdown_.ended() && transport_->in_flight() == 0; }

/// Whoever is in an explicit group with this rank must not wait for it: it is told now, or answered when it comes.
void Engine::leave() {
  if (said_left_ || failed_) return;
  said_left_ = true;
  for (Rank r = 0; r < size() && !acquaintances_.empty(); ++r) {
    if (acquaintances_.contains(r)) send_departure(Control::kLeft, r);
  }
}

void Engine::send_departure(Control kind, Rank to) { send(to, bytes_of(Departure{control(kind), bootstrap_.steps()})); }

/// What goes wrong is told without a detour: by as many messages as there are ranks.
void Engine::tell_all(Control kind) {
  for (Rank r = 0; r < size(); ++r) {
    if (r != rank()) send_departure(kind, r);
  }
}

/// Once every rank has closed nobody needs to be told anything, and nothing may be on its way at the end.
void Engine::send(Rank to, ConstBytes message) {
  if (!shutdown_.is_silent()) transport_->notify(to, message);
}

void Engine::abandon() {
  exclusively([this] {
    abandoned_ = true;
    in_background_ = true;
    if (!said_left_ && !failed_) {  // nobody may drive this engine: do not rely on its answers
      said_left_ = true;
      tell_all(Control::kLeft);
    }
    for (const auto& collective : collectives_) collective->abandon();
  });
  wake();
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

void Engine::on_notice(Rank from, ConstBytes notice) {
  NoticeHeader header;
  if (notice.size() < sizeof header) throw InternalError("a notice is too short");
  std::memcpy(&header, notice.data(), sizeof header);
  if (header.collective == 0) return on_control(from, static_cast<Control>(header.kind), notice);
  ++received_;
  if (header.collective == kExplicitGroups && acquaintances_.insert(from) && said_left_) {
    send_departure(Control::kLeft, from);
  }
  if (const auto found = by_id_.find(header.collective); found != by_id_.end()) {
    found->second->on_notice(from, notice);
  } else if (header.collective >= next_collective_) {
    early_.emplace_back(from, std::vector<std::byte>(notice.begin(), notice.end()));
  }  // else it has ended: nothing can depend on it any more
}

void Engine::on_control(Rank from, Control kind, ConstBytes message) {
  if (kind >= Control::kClosed && kind <= Control::kEnd) return shutdown_.on_message(kind, message);
  ++received_;
  switch (kind) {
    case Control::kInquiry:
      return roll_call_.on_inquiry(from, message, {bootstrap_.steps(), shutdown_.closed()});
    case Control::kAnswer:
      return roll_call_.on_answer(from, message);
    case Control::kGaveUp:
      gave_up_.insert(std::lower_bound(gave_up_.begin(), gave_up_.end(), from), from);
      return;
    case Control::kLeft:
      if (left_.insert(from)) departed_.push_back({from, read_control<Departure>(message).steps});
      return;
    default:
      return bootstrap_.on_message(from, kind, message);
  }
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
