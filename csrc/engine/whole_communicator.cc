// Operations of an engine with the engines of all other ranks: comparing, handing down, closing.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <span>
#include <thread>
#include <utility>

#include "core/at_end.h"
#include "core/error.h"
#include "diagnostics/flight_dump.h"
#include "engine/engine.h"
#include "engine/progress_thread.h"
#include "engine/stall_warning.h"

namespace pyc {
namespace {

constexpr Seconds kArrivalTime = 0.1;
constexpr Seconds kAnswerTime = 0.5;  // an engine answers without its application
constexpr Seconds kClosingNap = 1e-3;
constexpr Seconds kMoment = 1e-3;  // a shorter wait: the time limit was over before this step

/// For more ranks than cores: naps from the start leave the cores to ranks that have not arrived yet.
Backoff::Sleep longer_naps() {
  return [nap = 50e-6](Seconds longest) mutable {
    Backoff::nap(nap);
    nap = std::min(2 * nap, longest);
    return true;
  };
}

}  // namespace

// ------------------------------------------------------------------------------------------------ bootstrap

Engine::Texts Engine::compare(const std::string& text, const std::string& what, Seconds timeout,
                              const Interrupt& interrupt) {
  exclusively([&] { start_comparison(text); });
  finish_step({}, what, timeout, interrupt);
  return exclusively([&] { return compared(what); });
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
  // The id of the next collective, which must be the same on all ranks, comes first.
  text.insert(0, reinterpret_cast<const char*>(&next_collective_), sizeof next_collective_);
  bootstrap_.compare(std::move(text));
}

std::optional<Engine::Texts> Engine::finished_comparison() {
  if (!in_step_ || !bootstrap_.done()) return std::nullopt;
  in_step_ = false;
  return compared("a comparison");
}

Engine::Texts Engine::compared(const std::string& what) {
  Texts texts = bootstrap_.texts();
  if (!texts) return texts;
  std::map<std::uint32_t, std::vector<Rank>> ranks_by_next;
  for (Rank r = 0; r < size(); ++r) {
    std::string& text = (*texts)[static_cast<std::size_t>(r)];
    ranks_by_next[read_front<std::uint32_t>(std::as_bytes(std::span(text)))].push_back(r);
    text.erase(0, sizeof next_collective_);
  }
  if (ranks_by_next.size() == 1) return texts;
  std::string numbers;
  for (const auto& [next, ranks] : ranks_by_next) {
    numbers += (numbers.empty() ? " " : ", ") + std::to_string(next - 1) + " on " + list_ranks(ranks);
  }
  throw MismatchError(what + ": ranks have not made the same number of collectives:" + numbers +
                      "; one could not be made on some ranks alone, and this communicator takes no more");
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
  check_can_start();
  if (in_step_) throw ClosedError("the communicator is unusable: an earlier collective call on it did not complete");
  in_step_ = true;
}

/// `members`: the ranks that the step needs; all ranks if empty.
void Engine::finish_step(const std::vector<Rank>& members, const std::string& what, Seconds timeout,
                         const Interrupt& interrupt) {
  const FlightRecorder::Waiting waiting(recorder_, 0, what);
  const std::uint64_t step = exclusively([this] { return bootstrap_.steps(); });
  const Seconds start = transport_->now();
  Seconds waited = 0;
  bool is_complete = false;
  bool in_time = false;
  try {
    in_time = wait_and_warn(
        *this, timeout, [&](Seconds limit) { return wait_for_step(step, limit, interrupt); },
        [&] {
          const std::vector<Rank> missing = call_roll(step, interrupt);
          if (!is_first_not_in(missing)) return std::string();  // another rank gives the common reason
          return exclusively(
              [&] { return what + ":" + why_incomplete(step, missing, members, transport_->now() - start) + "."; });
        });
    waited = transport_->now() - start;
    if (exclusively([this] { return aborted_; })) throw ClosedError("the communicator was closed while a call waited");
    is_complete = exclusively([this] { return bootstrap_.done(); }) || is_decided_after_all(interrupt);
  } catch (...) {  // Ctrl-C, or the engine failed
    give_up();
    throw;
  }
  if (is_complete) {
    exclusively([this] { in_step_ = false; });
    return;
  }
  if (!in_time || gave_up().empty()) give_up();
  const std::vector<Rank> missing = call_roll(step, interrupt);
  exclusively([&] {
    throw StallError(what + ":" + why_incomplete(step, missing, members, waited) +
                     "; the communicator is unusable now");
  });
}

/// Whether the step ended within the time limit, completed or hopeless.
bool Engine::wait_for_step(std::uint64_t step, Seconds timeout, const Interrupt& interrupt) {
  // Once a rank has given up, the step cannot complete. Wait a moment to name others that give up too.
  Seconds hopeless_since = Collective::kNever;
  Seconds done_since = Collective::kNever;
  const auto is_over = [&] {
    return exclusively([&] {
      const Seconds now = transport_->now();
      if (!gave_up_.empty()) hopeless_since = std::min(hopeless_since, now);
      if (bootstrap_.done()) done_since = std::min(done_since, now);
      // Others need this rank's messages, and it may not be driven afterwards. A collective's messages may take longer.
      const bool is_done = bootstrap_.done() && (!is_sending() || now - done_since > kArrivalTime);
      return is_done || aborted_ || !left_before(step).empty() || now - hopeless_since > kArrivalTime;
    });
  };
  return wait(is_over, timeout, interrupt, longer_naps());
}

/// All ranks or none make the object, so this rank asks the root before it gives up.
bool Engine::is_decided_after_all(const Interrupt& interrupt) {
  exclusively([this] { bootstrap_.withdraw(); });
  const auto is_settled = [this] {
    return exclusively([this] { return (bootstrap_.done() || bootstrap_.withdrawn()) && !is_sending(); });
  };
  wait(is_settled, kAnswerTime, interrupt);
  return exclusively([this] { return bootstrap_.done(); });
}

/// Under the progress lock. A rank announces to all ranks that it gives up, but not that it leaves.
std::string Engine::why_incomplete(std::uint64_t step, std::vector<Rank> missing, const std::vector<Rank>& members,
                                   Seconds waited) const {
  const std::vector<Rank> left = left_before(step);
  std::erase_if(missing, [&](Rank rank) {
    return std::binary_search(left.begin(), left.end(), rank) ||
           std::binary_search(gave_up_.begin(), gave_up_.end(), rank) ||
           (!members.empty() && !std::binary_search(members.begin(), members.end(), rank));
  });
  std::string text;
  const auto add = [&text](const std::string& reason) { text += (text.empty() ? " " : ", ") + reason; };
  if (!missing.empty()) {
    add(list_ranks(missing) + " did not call it " + (waited < kMoment ? "in time" : "within " + in_seconds(waited)) +
        " (it is collective)");
  }
  if (!gave_up_.empty()) add(list_ranks(gave_up_) + " gave up waiting");
  if (!left.empty()) add(list_ranks(left) + " left the communicator");
  if (text.empty()) add("every rank has called it, but the outcome has not come in time");
  return text;
}

/// Whether all ranks below this one are in `ranks`, which is ascending.
bool Engine::is_first_not_in(const std::vector<Rank>& ranks) const {
  return static_cast<Rank>(std::lower_bound(ranks.begin(), ranks.end(), rank()) - ranks.begin()) == rank();
}

/// The ranks that take no such step anymore, ascending.
std::vector<Rank> Engine::left_before(std::uint64_t step) const {
  std::vector<Rank> ranks;
  for (const Departed& each : departed_) {
    if (each.steps < step) ranks.push_back(each.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

/// The ranks that have not begun a step of the bootstrap or, for step 0, have not closed.
std::vector<Rank> Engine::call_roll(std::uint64_t step, const Interrupt& interrupt) {
  exclusively([&] { roll_call_.ask(step); });
  const auto answered = [this] {
    return exclusively([this] { return roll_call_.all_answered() || shutdown_.is_silent(); });
  };
  wait(answered, kAnswerTime, interrupt);
  return exclusively([&] {
    const bool all_closed = step == 0 && shutdown_.is_silent();  // then no rank answers
    return all_closed ? std::vector<Rank>() : roll_call_.missing();
  });
}

void Engine::give_up() {
  if (!is_in_own_process() || failed_ || closed_) return;
  exclusively([this] {
    bootstrap_.withdraw();
    send_departures(Control::kGaveUp);
  });
}

std::vector<Rank> Engine::gave_up() {
  return exclusively([this] { return gave_up_; });
}

// ------------------------------------------------------------------------------------------------ shutdown

void Engine::close(Seconds timeout, const Interrupt& interrupt) {
  const Seconds start = transport_->now();
  begin_closing(timeout, interrupt);
  const AtEnd another_may_close([this] { closer_ = std::thread::id(); });
  if (closed_) return;
  const FlightRecorder::Waiting waiting(recorder_, 0, "closing");
  const auto remaining = [&] { return timeout < 0 ? timeout : std::max(0.0, timeout - (transport_->now() - start)); };
  // Others close through this engine, so the progress thread drives it if the application stops waiting.
  const auto wait_until = [&](const std::function<bool()>& done, const std::function<std::string()>& why_not) {
    try {
      return wait_and_warn(
          *this, remaining(), [&](Seconds limit) { return wait(done, limit, interrupt, longer_naps()); }, why_not);
    } catch (...) {
      wake();
      if (failed_) write_trace_of_failure();
      throw;
    }
  };
  exclusively([this] { leave(); });
  const auto is_alone = [this] { return exclusively([this] { return collectives_.empty(); }); };
  if (!wait_until(is_alone, [this] { return what_is_open(); })) {
    wake();
    throw StallError(what_is_open());
  }
  exclusively([this] { shutdown_.close(); });
  const auto is_over = [this] { return exclusively([this] { return may_close(); }); };
  const auto why_not_over = [&] {
    const std::vector<Rank> missing = call_roll(0, interrupt);
    return "closing the communicator: " +
           (missing.empty() ? "every rank has closed it, but messages are still on their way"
                            : "not closed on " + list_ranks(missing) + "; every rank must close (or leave) it");
  };
  if (!wait_until(is_over, why_not_over)) {
    const std::string text = why_not_over();
    wake();
    if (!is_over()) throw StallError(text);
  }
  exclusively([this] {
    print_notice();
    closed_ = true;  // no pass is under way, and none starts later
  });
  if (progress_ == Progress::kThread) ProgressThread::instance().remove(this);
  FlightDump::instance().remove(&recorder_);
  transport_->close();
  if (trace_) trace_->write();
}

/// A trace is most useful for a run that fails. The run's error is raised, not the trace's.
void Engine::write_trace_of_failure() const {
  if (!trace_) return;
  try {
    trace_->write();
  } catch (const std::runtime_error& error) {
    warn(error.what());
  }
}

std::string Engine::what_is_open() {
  return exclusively([this] {
    std::string text = "closing the communicator:";
    bool all_have_closed = true;
    if (collectives_.empty()) text += " the last collective has just ended;";
    for (const auto& collective : collectives_) {
      const std::vector<Rank> missing = collective->not_closed();
      all_have_closed = all_have_closed && missing.empty();
      text +=
          " '" + collective->name() + "' " +
          (missing.empty() ? "is closed on every rank, and still at work" : "is not closed on " + list_ranks(missing)) +
          ";";
    }
    return text + (all_have_closed ? " call close again" : " every rank must close (or leave) it");
  });
}

/// Waits until no other thread closes, because the last step, which frees MPI's resources, must run only once.
void Engine::begin_closing(Seconds timeout, const Interrupt& interrupt) {
  const std::thread::id own = std::this_thread::get_id();
  if (closer_ == own) throw ClosedError("the communicator is being closed: this thread is in its close() already");
  const Seconds start = transport_->now();
  for (std::thread::id closer; !closer_.compare_exchange_strong(closer, own); closer = {}) {
    check_process();
    if (timeout >= 0 && transport_->now() - start >= timeout) {
      throw StallError("closing the communicator: another thread of this rank is closing it, and waits");
    }
    if (interrupt) interrupt();
    Backoff::nap(kClosingNap);
  }
}

void Engine::start_close() {
  leave();
  shutdown_.close();
}

bool Engine::may_close() { return shutdown_.ended() && transport_->in_flight() == 0; }

/// Notifies the ranks that may wait for this one, now or later: its neighbors in the bootstrap tree, which notify the
/// others, and all ranks that use the uncreated collective.
void Engine::leave() {
  if (leaves_ || failed_) return;
  leaves_ = true;
  for (const Rank neighbour : bootstrap_.neighbours()) send_departure(Control::kLeft, neighbour);
  for (Rank r = 0; r < size() && !explicit_partners_.empty(); ++r) {
    if (explicit_partners_.contains(r)) send_departure(Control::kLeft, r);
  }
}

void Engine::send_departure(Control kind, Rank to) { send(to, bytes_of(Departure{control(kind), bootstrap_.steps()})); }

/// Bad news takes no detour along the tree: as many messages as there are ranks.
void Engine::send_departures(Control kind) {
  for (Rank r = 0; r < size(); ++r) {
    if (r != rank()) send_departure(kind, r);
  }
}

/// After every rank has closed, no rank needs messages, and none may be on its way at the end.
void Engine::send(Rank to, ConstBytes message) {
  if (!shutdown_.is_silent()) transport_->send_active(to, message);
}

void Engine::announce(const std::string& whole) {
  if (!is_in_own_process()) return;
  const std::string text = whole.substr(0, kMaxActiveMessage - sizeof(MessageHeader));
  exclusively([&] {
    if (leaves_ || failed_ || std::exchange(announced_, true)) return;
    if (notice_ && notice_->text != text) print_notice();  // the other error may be the cause of this one
    if (notice_) notice_->settled = true;
    const MessageHeader header = control(Control::kNotice);
    std::vector<std::byte> message(sizeof header + text.size());
    std::memcpy(message.data(), &header, sizeof header);
    std::memcpy(message.data() + sizeof header, text.data(), message.size() - sizeof header);
    for (Rank r = 0; r < size(); ++r) {
      if (r != rank()) send(r, message);
    }
  });
  advance();
}

void Engine::abort() {
  exclusively([this] {
    in_background_ = !failed_;
    if (failed_) busy_ = false;                                  // it makes no progress
    if (!aborted_ && !failed_) send_departures(Control::kLeft);  // this engine may not be driven to answer
    aborted_ = leaves_ = true;
    for (const auto& collective : collectives_) collective->abort();
  });
  wake();
}

}  // namespace pyc
