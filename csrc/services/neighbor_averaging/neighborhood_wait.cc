// How a call of a neighborhood waits, and what it says of the neighbors that do not come.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
#include "engine/stall_warning.h"
#include "services/common/stall.h"
#include "services/common/waiting.h"
#include "services/neighbor_averaging/neighborhood.h"

namespace pyc {
namespace {

constexpr auto kCloseFirst =
    "A rank that makes fewer steps must close() it before another collective call, of MPI too.";

}  // namespace

void Neighborhood::wait_for(const std::string& what, const std::function<bool()>& done,
                            const std::function<std::vector<Awaited>()>& awaited, Seconds timeout,
                            const Engine::Interrupt& interrupt) {
  if (done()) return;
  const InCall in_call(in_call_);
  const FlightRecorder::Waiting waiting(engine_->recorder(), id_, "the neighbors of " + what);
  const Seconds start = engine_->transport().now();
  const auto wait_once = [&](Seconds limit) {
    return wait_while_alive(
        *engine_, done, limit, interrupt, [this] { check_alive(); },
        [&](Seconds longest) { return sleep(awaited, longest); });
  };
  const auto why_not = [&] {
    const std::vector<Awaited> missing = engine_->exclusively(awaited);
    return explain(what, missing, engine_->transport().now() - start, done, interrupt);
  };
  const auto warning = [&] { return why_not() + " " + kCloseFirst; };
  if (wait_and_warn(*engine_, timeout, wait_once, warning)) return;
  const std::string text = why_not();
  if (!done()) throw StallError(text);
}

/// Where all that is waited for is on this node, whose ranks ring.
bool Neighborhood::sleep(const std::function<std::vector<Awaited>()>& awaited, Seconds limit) {
  const std::uint32_t rings = board_->rings();  // before looking
  bool on_board = false;
  bool sleeps = false;
  engine_->exclusively_if_free([&] {
    const std::vector<Awaited> missing = awaited();
    on_board = std::all_of(missing.begin(), missing.end(), [this](const Awaited& a) { return is_local(a.rank); });
    sleeps = on_board && !missing.empty();
  });
  if (sleeps) board_->sleep(rings, limit);
  return on_board;
}

/// RankFailedError if a rank of this node is gone.
void Neighborhood::check_alive() const {
  std::vector<Rank> gone;
  for (const std::size_t local : board_->gone()) gone.push_back(nodes_.neighbours(engine_->rank())[local]);
  const std::vector<Rank> dead = engine_->failures().dead_if_gone(std::move(gone));
  if (!dead.empty()) throw died("'" + options_.name + "'", dead, "it is unusable now");
}

// ------------------------------------------------------------------------------------------------ stalls

/// Asks those who have not come, and says what is known of them.
std::string Neighborhood::explain(const std::string& what, const std::vector<Awaited>& awaited, Seconds waited,
                                  const std::function<bool()>& done, const Engine::Interrupt& interrupt) {
  engine_->exclusively([&] {
    std::fill(reports_.begin(), reports_.end(), Report{RankState::kComplete});
    std::map<Rank, std::uint64_t> newest;  // of the steps that are awaited of a rank
    for (const Awaited& a : awaited) newest[a.rank] = std::max(newest[a.rank], a.step);
    for (const auto& [rank, step] : newest) {
      Report& report = reports_[static_cast<std::size_t>(rank)];
      report = {};
      if (is_local(rank) && board_->state(nodes_.local_rank_of(rank)) == ProcessState::kStopped) {
        report.state = RankState::kStopped;
      } else {
        neighborhood::Messages(*engine_, id_).send(rank, neighborhood::Inquiry{step});
      }
    }
  });
  const auto reports = [this] { return engine_->exclusively([this] { return reports_; }); };
  const auto is_known = [&] {
    const std::vector<Report> all = reports();
    return std::none_of(all.begin(), all.end(), [](const Report& r) { return r.state == RankState::kSilent; });
  };
  engine_->wait([&] { return done() || is_known(); }, kAnswerTime, interrupt);

  std::map<std::uint64_t, std::set<Rank>> by_step;
  for (const Awaited& a : awaited) by_step[a.step].insert(a.rank);
  std::string missing;
  for (const auto& [step, ranks] : by_step) {
    missing += (missing.empty() ? " (waits for " : "; for ") + ("step " + std::to_string(step)) + " of " +
               list_ranks({ranks.begin(), ranks.end()});
  }
  const char* const kind = options_.push_sum() ? "push-sum '" : "neighbor averaging '";
  return text_of_stall({.what = kind + options_.name + "', " + what + (missing.empty() ? "" : missing + ")"),
                        .round = kNoRound,
                        .waited = waited,
                        .flush = false,
                        .reports = reports(),
                        .gave_up = engine_->gave_up(),
                        .name_of = [this](std::uint32_t id) { return engine_->name_of(id); },
                        .if_all_arrived = "every neighbor has come: it is slow, wait again"});
}

Report Neighborhood::own_report(std::uint64_t step) const {
  if (averaged_ > step) return {RankState::kArrived};
  if (begun_ > step || in_call_) {
    const std::vector<Awaited> awaited = awaited_by_step();
    if (!awaited.empty()) return {RankState::kWaits, static_cast<std::uint32_t>(awaited.front().rank)};
  }
  if (begun_ > step) return {RankState::kArrived};
  if (closed_) return {RankState::kLeft};
  return report_of_absent(*engine_, *this, engine_->rank(), called_);
}

void Neighborhood::on_message(Rank from, ConstBytes bytes) {
  const auto receive = Handlers{
      [this](Rank by, const neighborhood::Ask& ask) { edges_->asked(by, ask.step); },
      [this](Rank by, const neighborhood::Left& left) { edges_->left(by, left.steps); },
      [this](Rank by, const neighborhood::Done&) { edges_->done(by); },
      [this](Rank by, const neighborhood::Inquiry& inquiry) {
        neighborhood::Messages(*engine_, id_).send(by, neighborhood::Answer{own_report(inquiry.step)});
      },
      [this](Rank by, const neighborhood::Answer& answer) { reports_[static_cast<std::size_t>(by)] = answer.report; },
  };
  neighborhood::Messages::deliver(from, bytes, receive);
}

}  // namespace pyc
