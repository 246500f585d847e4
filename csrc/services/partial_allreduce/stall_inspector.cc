#include "services/partial_allreduce/stall_inspector.h"

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <span>
#include <utility>

#include "core/error.h"
#include "services/common/stall.h"

namespace pyc {
namespace {

using Lock = std::unique_lock<BoardMutex>;

constexpr Seconds kLimit = 0.05;

Lock soon(BoardMutex& mutex) { return mutex.try_lock_for(kLimit) ? Lock(mutex, std::adopt_lock) : Lock(); }

}  // namespace

StallInspector::StallInspector(Engine& engine, const Collective& collective, const Nodes& nodes,
                               std::shared_ptr<Board> board)
    : engine_(engine), collective_(collective), nodes_(nodes), board_(std::move(board)) {}

void StallInspector::check_alive() const {
  std::vector<Rank> gone;
  const std::vector<Rank>& ranks = board_->shape().ranks;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const BoardSlot& slot = board_->ranks()[static_cast<Rank>(i)];
    const bool serves = i == 0 && nodes_.count() > 1 && !board_->ended();  // a leader serves after it has closed
    if (slot.gone.load(std::memory_order_relaxed) && !serves) continue;
    if (state_of(slot.process) == ProcessState::kGone) gone.push_back(ranks[i]);
  }
  const std::vector<Rank> dead = engine_.failures().dead_if_gone(std::move(gone));
  if (!dead.empty()) throw died("'" + collective_.name() + "'", dead, "the collective is unusable now");
}

void StallInspector::check_briefly() const {
  board_->check_failure();
  for (Rank i = 0; i < board_->ranks().count(); ++i) {
    if (!exists(board_->ranks()[i].process)) return check_alive();
  }
}

std::vector<Report> StallInspector::reports_here(RoundNumber round) const {
  const bool may_lock = board_->mutex().comes_free(kLimit);
  std::vector<Report> reports;
  for (Rank i = 0; i < board_->ranks().count(); ++i) reports.push_back(report_of(i, round, may_lock));
  return reports;
}

Report StallInspector::report_of(Rank local, RoundNumber round, bool may_lock) const {
  const BoardRanks& ranks = board_->ranks();
  const BoardSlot& slot = ranks[local];
  const ProcessState process = state_of(slot.process);
  if (process == ProcessState::kGone) return {RankState::kGone};
  const Lock lock = may_lock ? soon(board_->mutex()) : Lock();
  if (!lock) return {process == ProcessState::kStopped ? RankState::kStopped : RankState::kArrived};  // unknown
  const BoardRound::State& s = board_->round().state();
  if (board_->rounds() > round) return {RankState::kComplete};
  const bool may_hold_a_segment = s.batch > 0 || s.adding > 0 || s.folding;
  const BoardPosts& posts = board_->posts();
  const bool has_come = slot.taken || ranks.arrived().contains(local) || (posts.on() && posts.has_posted(local, round));
  if (process == ProcessState::kStopped && (may_hold_a_segment || !has_come)) return {RankState::kStopped};
  if (ranks.left().contains(local)) return {RankState::kLeft};
  if (has_come) return {RankState::kArrived};
  const Rank rank = board_->shape().ranks[static_cast<std::size_t>(local)];
  return report_of_absent(engine_, collective_, rank, std::max(slot.called, posts.last_called(local)));
}

void StallInspector::inquire(RoundNumber round) {
  {
    const Lock lock = soon(board_->mutex());
    if (!lock) return;
    if (board_->inquiry().round != round) std::fill_n(board_->reports(), nodes_.size(), Report{});
    board_->inquiry() = {.round = round, .is_new = true};
  }
  board_->draw_attention();
}

bool StallInspector::knows_the_missing() const {
  const Lock lock = soon(board_->mutex());
  if (!lock) return true;  // its owner is missing
  const std::span reports(board_->reports(), static_cast<std::size_t>(nodes_.size()));
  const auto is_silent = [](const Report& r) { return r.state == RankState::kSilent; };
  const auto has_come = [](const Report& r) {
    return r.state == RankState::kArrived || r.state == RankState::kComplete;
  };
  return std::none_of(reports.begin(), reports.end(), is_silent) &&
         !std::all_of(reports.begin(), reports.end(), has_come);
}

std::string StallInspector::holder() const {
  std::vector<Rank> stopped;
  for (Rank i = 0; i < board_->ranks().count(); ++i) {
    const Rank rank = board_->shape().ranks[static_cast<std::size_t>(i)];
    if (state_of(board_->ranks()[i].process) == ProcessState::kStopped) stopped.push_back(rank);
  }
  const std::string who = stopped.empty() ? "another rank" : list_ranks(stopped) + " (stopped)";
  return who + " has not finished changing what the ranks of this node share";
}

std::string StallInspector::text(RoundNumber round, Seconds waited, bool flush) const {
  const std::vector<Report> by_rank = reports(round);
  return text_of_stall({.what = (flush ? "flush of '" : "partial allreduce '") + collective_.name() + "'",
                        .round = round,
                        .waited = waited,
                        .flush = flush,
                        .reports = by_rank,
                        .gave_up = engine_.gave_up(),
                        .name_of = [this](std::uint32_t id) { return engine_.name_of(id); },
                        .why_silent = why_silent(by_rank)});
}

std::vector<Report> StallInspector::reports(RoundNumber round) const {
  std::vector<Report> reports(static_cast<std::size_t>(nodes_.size()));
  if (nodes_.count() > 1) {
    const Lock lock = soon(board_->mutex());
    if (lock) std::copy_n(board_->reports(), reports.size(), reports.begin());
  }
  // This rank reports for its node where the leader has not: the leader may be the rank that is stopped.
  engine_.exclusively([&] {
    const std::vector<Rank>& ranks = board_->shape().ranks;
    const std::vector<Report> here = reports_here(round);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      Report& report = reports[static_cast<std::size_t>(ranks[i])];
      if (report.state == RankState::kSilent) report = here[i];
    }
  });
  return reports;
}

std::string StallInspector::why_silent(const std::vector<Report>& reports) const {
  const Rank leader = board_->shape().ranks.front();
  const bool leader_is_stopped = reports[static_cast<std::size_t>(leader)].state == RankState::kStopped;
  if (nodes_.count() == 1 || !leader_is_stopped) return "stopped or gone";
  return "asked through rank " + std::to_string(leader) + ", which is stopped";
}

}  // namespace pyc
