// How a call waits, and what it says of the ranks that do not come.
#include <algorithm>
#include <utility>

#include "core/error.h"
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

void ParameterServer::wait_for(const std::string& what, const std::function<bool()>& done, const Limit& limit,
                               const Obstacle& obstacle) {
  const auto is_done = [&] {
    if (closed_) throw ClosedError("'" + name() + "' was closed meanwhile");
    return done();
  };
  naming_the_dead([&] { wait_until(what, is_done, limit, obstacle); }, [this] { check_alive(); });
}

void ParameterServer::wait_until(const std::string& what, const std::function<bool()>& done, const Limit& limit,
                                 const Obstacle& obstacle) {
  const auto is_done = [&] {
    if (done()) return true;
    attend();
    return false;
  };
  called_ = engine_->transport().now();
  if (is_done()) return;
  const InCall in_call(in_call_);
  const FlightRecorder::Waiting waiting(engine_->recorder(), id_, what);
  const Seconds start = engine_->transport().now();
  const auto sleep_once = [&](Seconds longest) {
    if (!obstacle.rank) return sleep(longest, is_done);
    if (!obstacle.sleep) return false;
    obstacle.sleep(longest);
    return true;
  };
  const auto wait_once = [&](Seconds longest) {
    return wait_while_alive(*engine_, is_done, longest, limit.interrupt, [this] { check_alive(); }, sleep_once);
  };
  const auto why_not = [&] {
    const Seconds waited = engine_->transport().now() - start;
    return obstacle.rank ? explain(what, waited, obstacle) : explain(what, waited, is_done, limit);
  };
  if (wait_and_warn(*engine_, limit.timeout, wait_once, why_not)) return;
  const std::string text = why_not();
  if (!is_done()) throw StallError(text);
}

// ------------------------------------------------------------------------------------------------ stalls

/// Where the engine answers, and the application may be anywhere.
void ParameterServer::answer(Rank to) const {
  const Report report = closed_ ? Report{RankState::kLeft} : report_of_absent(*engine_, *this, rank(), called_.load());
  mailbox().send(to, messages::Answer{report});
}

/// Who is in the way, and how that rank is. An engine need not be asked: this is memory of one node.
std::string ParameterServer::explain(const std::string& what, Seconds waited, const Obstacle& obstacle) const {
  std::vector<Report> reports(reports_.size(), Report{RankState::kComplete});
  std::string text = "parameter server '" + name() + "', " + what;
  if (const std::optional<Rank> by = obstacle.rank()) {
    text += " (waits for the work of " + list_ranks({*by}) + " on the weights)";
    const ProcessState state = *by == rank() ? ProcessState::kAlive : board_->state(*by);
    if (state == ProcessState::kStopped) reports[static_cast<std::size_t>(*by)] = {RankState::kStopped};
    if (state == ProcessState::kGone) reports[static_cast<std::size_t>(*by)] = {RankState::kGone};
  }
  return text_of_stall({.what = text,
                        .round = kNoRound,
                        .waited = waited,
                        .flush = false,
                        .reports = std::move(reports),
                        .gave_up = {},
                        .name_of = {},
                        .if_all_arrived = "its process is not stopped: it is slow, call again"});
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
