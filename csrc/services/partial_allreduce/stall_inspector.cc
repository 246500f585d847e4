#include "services/partial_allreduce/stall_inspector.h"

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <utility>

#include "core/error.h"

namespace pyc {
namespace {

using Lock = std::unique_lock<RobustMutex>;

}  // namespace

StallInspector::StallInspector(Engine& engine, const Collective& collective, const Nodes& nodes,
                               std::shared_ptr<Board> board)
    : engine_(engine), collective_(collective), nodes_(nodes), board_(std::move(board)) {}

void StallInspector::check_alive() const {
  std::vector<Rank> gone;
  const std::vector<Rank>& ranks = board_->shape().ranks;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const BoardSlot& slot = board_->ranks()[static_cast<Rank>(i)];
    const bool serves = i == 0 && nodes_.count() > 1 && !board_->ended();  // the agent, though it has closed
    if (slot.gone.load(std::memory_order_relaxed) && !serves) continue;
    if (state_of(slot.process) == ProcessState::kGone) gone.push_back(ranks[i]);
  }
  if (gone.empty()) return;
  throw RankFailedError("'" + collective_.name() + "': " + list_ranks(gone) + " died; the collective is unusable now");
}

void StallInspector::check_briefly() const {
  board_->check_failure();
  for (Rank i = 0; i < board_->ranks().count(); ++i) {
    if (!exists(board_->ranks()[i].process)) return check_alive();
  }
}

Report StallInspector::report_of(Rank local, RoundNumber round) const {
  const BoardRanks& ranks = board_->ranks();
  const BoardSlot& slot = ranks[local];
  const ProcessState process = state_of(slot.process);
  const Lock lock(board_->mutex());
  const BoardRound::State& s = board_->round().state();
  if (process == ProcessState::kGone) return {Standing::kGone};
  if (board_->completed() > round) return {Standing::kComplete};
  const bool may_hold_a_segment = s.batch > 0 || s.folding;
  const bool has_come = slot.taken || ranks.arrived().contains(local);
  if (process == ProcessState::kStopped && (may_hold_a_segment || !has_come)) return {Standing::kStopped};
  if (ranks.left().contains(local)) return {Standing::kLeft};
  if (has_come) return {Standing::kArrived};
  const Rank rank = board_->shape().ranks[static_cast<std::size_t>(local)];
  if (const auto elsewhere = engine_.waits_in(rank, &collective_)) return {Standing::kElsewhere, *elsewhere};
  const Seconds quiet = engine_.transport().now() - slot.called;
  return {Standing::kNotArrived, 0, static_cast<std::uint32_t>(std::clamp(quiet * 1e3, 0.0, 4e9))};
}

void StallInspector::inquire(RoundNumber round) {
  {
    const Lock lock(board_->mutex());
    if (board_->inquiry().round != round) std::fill_n(board_->reports(), nodes_.size(), Report{});
    board_->inquiry() = {.round = round, .is_new = true};
  }
  board_->draw_attention();
}

bool StallInspector::all_answered() const {
  const Lock lock(board_->mutex());
  return std::all_of(board_->reports(), board_->reports() + nodes_.size(),
                     [](const Report& r) { return r.standing != Standing::kSilent; });
}

std::vector<Report> StallInspector::reports(RoundNumber round) const {
  std::vector<Report> reports(static_cast<std::size_t>(nodes_.size()));
  if (nodes_.count() > 1) {
    const Lock lock(board_->mutex());
    std::copy_n(board_->reports(), reports.size(), reports.begin());
  }
  // Of this node's ranks whatever its agent has not said: it may be the one who is stopped.
  engine_.exclusively([&] {
    const std::vector<Rank>& ranks = board_->shape().ranks;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      Report& report = reports[static_cast<std::size_t>(ranks[i])];
      if (report.standing == Standing::kSilent) report = report_of(static_cast<Rank>(i), round);
    }
  });
  return reports;
}

std::string StallInspector::why_silent(const std::vector<Report>& reports) const {
  const Rank agent = board_->shape().ranks.front();
  const bool agent_is_stopped = reports[static_cast<std::size_t>(agent)].standing == Standing::kStopped;
  if (nodes_.count() == 1 || !agent_is_stopped) return "stopped or gone";
  return "asked through rank " + std::to_string(agent) + ", which is stopped";
}

}  // namespace pyc
