// How a call waits, and what it says of the ranks that do not come.
#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/relax.h"
#include "engine/stall_warning.h"
#include "services/common/stall.h"
#include "services/common/waiting.h"
#include "services/parameter_server/parameter_server.h"

namespace pyc::server {

void ParameterServer::check_open() const {
  engine_->check();
  if (closed_) throw ClosedError("'" + name() + "' is closed");
}

void ParameterServer::check_alive() const {
  const std::vector<Rank> dead = engine_->failures().dead_if_gone(board_->gone());
  if (!dead.empty()) throw died("'" + name() + "'", dead, "it is unusable now");
}

void ParameterServer::wait_for(const std::string& what, const std::function<bool()>& done, const Limit& limit) {
  const auto is_done = [&] {
    if (closed_) throw ClosedError("'" + name() + "' was closed meanwhile");
    return done();
  };
  called_ = engine_->transport().now();
  if (is_done()) return;
  const InCall in_call(in_call_);
  const FlightRecorder::Waiting waiting(engine_->recorder(), id_, what);
  const Seconds start = engine_->transport().now();
  const auto wait_once = [&](Seconds longest) {
    return wait_while_alive(
        *engine_, is_done, longest, limit.interrupt, [this] { check_alive(); },
        [&](Seconds nap) { return sleep(nap, is_done); });
  };
  const auto why_not = [&] { return explain(what, engine_->transport().now() - start, is_done, limit); };
  if (wait_and_warn(*engine_, limit.timeout, wait_once, why_not)) return;
  const std::string text = why_not();
  if (!is_done()) throw StallError(text);
}

void ParameterServer::wait_in_work(const std::function<bool()>& done, const Engine::Interrupt& interrupt) const {
  constexpr int kLooks = 200;
  for (int looks = 0; looks < kLooks; ++looks) {
    if (done()) return;
    relax();
  }
  const auto no_sleep = [](Seconds) { return false; };
  wait_while_alive(*engine_, done, -1, interrupt, [this] { check_alive(); }, no_sleep);
}

// ------------------------------------------------------------------------------------------------ stalls

/// Where the engine answers, and the application may be anywhere.
void ParameterServer::answer(Rank to) const {
  const Report report = closed_ ? Report{RankState::kLeft} : report_of_absent(*engine_, *this, rank(), called_.load());
  mailbox().send(to, messages::Answer{report});
}

/// Finds out whose pushes are waited for, asks those ranks, and says what is known of them.
std::string ParameterServer::explain(const std::string& what, Seconds waited, const std::function<bool()>& done,
                                     const Limit& limit) {
  const std::optional<std::vector<Rank>> ranks = awaited(limit);
  std::string text = "parameter server '" + name() + "', " + what;
  if (ranks && !ranks->empty()) text += " (waits for the push of " + list_ranks(*ranks) + ")";
  engine_->exclusively([&] {
    std::fill(reports_.begin(), reports_.end(), Report{RankState::kComplete});
    if (!ranks) reports_[static_cast<std::size_t>(layout_.coordinator())] = {};
    for (const Rank r : ranks.value_or(std::vector<Rank>{})) {
      Report& report = reports_[static_cast<std::size_t>(r)];
      report = {};
      if (is_local(r) && board_->state(r) == ProcessState::kStopped) {
        report.state = RankState::kStopped;
      } else {
        mailbox().send(r, messages::Inquiry{});
      }
    }
  });
  const auto reports = [this] { return engine_->exclusively([this] { return reports_; }); };
  const auto is_known = [&] {
    const std::vector<Report> all = reports();
    return std::none_of(all.begin(), all.end(), [](const Report& r) { return r.state == RankState::kSilent; });
  };
  if (ranks) engine_->wait([&] { return done() || is_known(); }, kAnswerTime, limit.interrupt);
  return text_of_stall({.what = text,
                        .round = kNoRound,
                        .waited = waited,
                        .flush = false,
                        .reports = reports(),
                        .gave_up = engine_->gave_up(),
                        .name_of = [this](std::uint32_t id) { return engine_->name_of(id); },
                        .if_all_arrived = "no push is waited for: the servers are slow, call again"});
}

}  // namespace pyc::server
