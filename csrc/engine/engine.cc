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

constexpr std::uint32_t kGatheringSerial = 0;  // no run has it
constexpr Tag kGatheringTag = 0;               // no collective has it, see first_tag
constexpr Seconds kInterruptPeriod = 0.05;
constexpr Seconds kArrivalTime = 0.1;

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

/// An allgather of short texts: one message to and one from every other rank.
struct Engine::Gathering {
  struct Wire {
    std::uint64_t length = 0;
    char text[kMaxExchange] = {};

    explicit Wire(const std::string& s = {}) : length(s.size()) { std::copy(s.begin(), s.end(), text); }
    std::string str() const { return {text, length}; }
    Bytes bytes() { return std::as_writable_bytes(std::span(this, 1)); }
  };
  enum Direction : std::uint32_t { kOut, kIn };

  Gathering(Rank size, const std::string& text)
      : mine(text), theirs(static_cast<std::size_t>(size)), received(static_cast<std::size_t>(size)) {}

  static Cookie cookie(Rank peer, Direction direction) { return static_cast<Cookie>(peer) * 2 + direction; }

  Wire mine;
  std::vector<Wire> theirs;
  std::vector<bool> received;
  std::size_t open = 0;  // sends and receives that have not completed
};

Engine::Engine(std::unique_ptr<Transport> transport, Progress progress, std::string transport_name,
               std::unique_ptr<Trace> trace, std::size_t flight_rounds)
    : transport_(std::move(transport)),
      progress_(progress),
      transport_name_(std::move(transport_name)),
      trace_(std::move(trace)),
      recorder_(*transport_, flight_rounds),
      runs_{nullptr},
      goodbyes_(static_cast<std::size_t>(transport_->size())),
      their_gatherings_(static_cast<std::size_t>(transport_->size())),
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
  bool background = abandoned_;
  for (const auto& collective : collectives_) {
    moved = collective->advance() || moved;
    busy = busy || collective->busy();
    if (collective->finished()) ended.push_back(collective.get());
    background = background || collective->in_background();
  }
  busy_.store(busy, std::memory_order_relaxed);
  in_background_.store(background, std::memory_order_relaxed);
  if (!ended.empty()) forget(ended);
  if (abandoned_ && collectives_.empty()) say_goodbye();  // nobody will call close here: let the others close
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

std::vector<std::string> Engine::exchange(const std::string& mine, const std::string& what, Seconds timeout,
                                          const Interrupt& interrupt) {
  if (mine.size() > kMaxExchange) {
    throw std::invalid_argument("exchange: at most 4096 bytes, got " + std::to_string(mine.size()));
  }
  exclusively([&] { start_gathering(mine); });
  const FlightRecorder::Waiting waiting(recorder_, 0, what);
  // Once somebody has given up nothing can come of it: what is under way may still arrive, to be named rightly.
  Seconds hopeless_since = Collective::kNever;
  const auto done = [&] {
    return exclusively([&] {
      if (!gave_up_.empty()) hopeless_since = std::min(hopeless_since, transport_->now());
      return gathering_->open == 0 || transport_->now() - hopeless_since > kArrivalTime;
    });
  };
  const Seconds start = transport_->now();
  bool complete = false;
  try {
    complete = wait(done, timeout, interrupt);
  } catch (...) {  // Ctrl-C, or the engine failed
    give_up();
    throw;
  }
  if (!complete) give_up();
  return exclusively([&] {
    std::vector<Rank> missing;
    std::vector<std::string> texts;
    for (Rank r = 0; r < size(); ++r) {
      if (!gathering_->received[static_cast<std::size_t>(r)]) missing.push_back(r);
      texts.push_back(gathering_->theirs[static_cast<std::size_t>(r)].str());
    }
    // What is to be made exists on every rank or is of no use on any.
    std::string text = what + ": ";
    if (!missing.empty()) {
      text += list_ranks(missing) + " did not call it within " + in_seconds(transport_->now() - start) +
              " (it is collective)";
    }
    if (!gave_up_.empty()) text += (missing.empty() ? "" : ", ") + list_ranks(gave_up_) + " gave up waiting";
    if (!missing.empty() || !gave_up_.empty()) throw StallError(text + "; the communicator is unusable now");
    gathering_.reset();
    return texts;
  });
}

void Engine::start_gathering(const std::string& mine) {
  if (closed_) throw ClosedError("the communicator is closed: by close() or by MPI_Finalize");
  if (gathering_) throw ClosedError("the communicator is unusable: an earlier collective call on it did not complete");
  gathering_ = std::make_unique<Gathering>(size(), mine);
  ++gatherings_;
  gathering_->theirs[static_cast<std::size_t>(rank())] = gathering_->mine;
  gathering_->received[static_cast<std::size_t>(rank())] = true;
  gathering_->open = 2 * (static_cast<std::size_t>(size()) - 1);
  for (Rank r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    transport_->recv(r, kGatheringTag, gathering_->theirs[static_cast<std::size_t>(r)].bytes(),
                     Gathering::cookie(r, Gathering::kIn));
    transport_->send(r, kGatheringTag, {}, gathering_->mine.bytes(), Gathering::cookie(r, Gathering::kOut));
  }
}

/// Tells the others that what they make together will not be complete.
void Engine::give_up() {
  if (!is_in_own_process() || failed_ || closed_) return;
  exclusively([this] { notify_all(Notice::kGaveUp); });
}

std::vector<Rank> Engine::gave_up() {
  return exclusively([this] { return gave_up_; });
}

void Engine::close(Seconds timeout, const Interrupt& interrupt) {
  if (closed_) return;
  const FlightRecorder::Waiting waiting(recorder_, 0, "closing");
  const Seconds start = transport_->now();
  const auto remaining = [&] { return timeout < 0 ? timeout : std::max(0.0, timeout - (transport_->now() - start)); };
  exclusively([this] { say_left(); });
  const auto retired = [this] { return exclusively([this] { return collectives_.empty(); }); };
  if (!wait(retired, remaining(), interrupt)) {
    throw StallError(exclusively([this] {
      std::string text = "closing the communicator:";
      for (const auto& collective : collectives_) {
        text += " '" + collective->name() + "' is not closed on " + list_ranks(collective->not_closed()) + ";";
      }
      return text + " every rank must close (or leave) it";
    }));
  }
  exclusively([this] { say_goodbye(); });
  const auto quiet = [this] {
    return exclusively([this] {
      return std::find(goodbyes_.begin(), goodbyes_.end(), false) == goodbyes_.end() && transport_->in_flight() == 0;
    });
  };
  if (!wait(quiet, remaining(), interrupt)) {
    throw StallError(exclusively([this] {
      std::vector<Rank> missing;
      for (Rank r = 0; r < size(); ++r) {
        if (!goodbyes_[static_cast<std::size_t>(r)]) missing.push_back(r);
      }
      return "closing the communicator: not closed on " + list_ranks(missing) + "; every rank must close (or leave) it";
    }));
  }
  exclusively([this] { closed_ = true; });  // no pass is under way, and none starts any more
  if (progress_ == Progress::kThread) ProgressThread::instance().remove(this);
  FlightDump::instance().remove(&recorder_);
  transport_->close();
  if (trace_) trace_->write();
}

void Engine::say_left() {
  if (said_left_ || failed_) return;
  said_left_ = true;
  notify_all(Notice::kLeft);
}

void Engine::say_goodbye() {
  if (said_goodbye_) return;
  said_goodbye_ = true;
  notify_all(Notice::kGoodbye);
  for (Rank r = 0; r < size(); ++r) {
    if (goodbyes_[static_cast<std::size_t>(r)]) answer_gathering(r);
  }
}

void Engine::notify_all(Notice::Kind kind) {
  const Notice notice{{0, kind}, gatherings_};
  for (Rank r = 0; r < size(); ++r) transport_->notify(r, std::as_bytes(std::span(&notice, 1)));
}

/// A rank that has left waits for a gathering that this one never made, and will not any more: match its messages.
void Engine::answer_gathering(Rank from) {
  if (their_gatherings_[static_cast<std::size_t>(from)] <= gatherings_) return;
  if (!gathering_) gathering_ = std::make_unique<Gathering>(size(), std::string());
  gathering_->open += 2;
  transport_->recv(from, kGatheringTag, gathering_->theirs[static_cast<std::size_t>(from)].bytes(),
                   Gathering::cookie(from, Gathering::kIn));
  transport_->send(from, kGatheringTag, {}, gathering_->mine.bytes(), Gathering::cookie(from, Gathering::kOut));
}

void Engine::abandon() {
  exclusively([this] {
    abandoned_ = true;
    in_background_ = true;
    say_left();
    for (const auto& collective : collectives_) collective->abandon();
  });
  wake();
}

void Engine::on_sent(Cookie cookie) {
  const auto serial = static_cast<std::uint32_t>(cookie >> 32);
  if (serial == kGatheringSerial) {
    --gathering_->open;
    return;
  }
  Run& run = *runs_[serial];
  run.on_sent(OpId(static_cast<std::uint32_t>(cookie)));
  run.pump();
}

void Engine::on_received(Cookie cookie, ConstBytes header, bool has_payload) {
  const auto serial = static_cast<std::uint32_t>(cookie >> 32);
  if (serial == kGatheringSerial) {
    gathering_->received[static_cast<std::size_t>(cookie / 2)] = true;
    --gathering_->open;
    return;
  }
  Run& run = *runs_[serial];
  run.on_received(OpId(static_cast<std::uint32_t>(cookie)), header, has_payload);
  run.pump();
}

void Engine::on_notice(Rank from, ConstBytes notice) {
  NoticeHeader header;
  if (notice.size() < sizeof header) throw InternalError("a notice is too short");
  std::memcpy(&header, notice.data(), sizeof header);
  if (header.collective == 0) {
    Notice said;
    if (notice.size() != sizeof said) throw InternalError("a notice has the wrong length");
    std::memcpy(&said, notice.data(), sizeof said);
    if (header.kind == Notice::kGaveUp) {
      if (from == rank()) return;
      gave_up_.insert(std::lower_bound(gave_up_.begin(), gave_up_.end(), from), from);
      return;
    }
    left_.insert(from);
    if (header.kind == Notice::kLeft) return;
    goodbyes_[static_cast<std::size_t>(from)] = true;
    their_gatherings_[static_cast<std::size_t>(from)] = said.gatherings;
    if (said_goodbye_) answer_gathering(from);
  } else if (const auto found = by_id_.find(header.collective); found != by_id_.end()) {
    found->second->on_notice(from, notice);
  } else if (header.collective >= next_collective_) {
    early_.emplace_back(from, std::vector<std::byte>(notice.begin(), notice.end()));
  }  // else it has ended: nothing can depend on it any more
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
