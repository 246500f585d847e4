#include "services/common/stall.h"

#include <algorithm>
#include <map>

namespace pyc {

std::string text_of_stall(const Stall& stall) {
  std::vector<Rank> silent;
  std::vector<Rank> stopped;
  std::vector<Rank> gone;
  std::vector<Rank> computing;
  std::uint32_t longest_ms = 0;
  std::map<std::uint32_t, std::vector<Rank>> elsewhere;
  std::map<Rank, std::vector<Rank>> waiting;
  for (std::size_t i = 0; i < stall.reports.size(); ++i) {
    const auto rank = static_cast<Rank>(i);
    if (std::find(stall.gave_up.begin(), stall.gave_up.end(), rank) != stall.gave_up.end()) continue;
    const Report& report = stall.reports[i];
    switch (report.state) {
      case RankState::kSilent:
        silent.push_back(rank);
        break;
      case RankState::kStopped:
        stopped.push_back(rank);
        break;
      case RankState::kGone:
        gone.push_back(rank);
        break;
      case RankState::kElsewhere:
        elsewhere[report.awaited].push_back(rank);
        break;
      case RankState::kWaits:
        waiting[static_cast<Rank>(report.awaited)].push_back(rank);
        break;
      case RankState::kArrived:
      case RankState::kNotArrived:
        // A flush also waits for ranks that have only arrived.
        if (report.state == RankState::kArrived && !stall.flush) break;
        computing.push_back(rank);
        longest_ms = std::max(longest_ms, report.quiet_ms);
        break;
      case RankState::kLeft:
      case RankState::kComplete:
        break;
    }
  }
  std::string text = stall.what;
  if (stall.round != kNoRound) text += ", round " + std::to_string(stall.round);
  text += ": not complete after " + in_seconds(stall.waited) + ";";
  const std::size_t so_far = text.size();
  const char* const missing = stall.flush ? " have not flushed or closed" : " have not arrived";
  if (!computing.empty()) {
    text += missing + std::string(": ") + list_ranks(computing);
    if (longest_ms > 0) text += " (alive; last call " + in_seconds(longest_ms * 1e-3) + " ago)";
    text += ';';
  }
  for (const auto& [id, ranks] : elsewhere) {
    text += missing + std::string(", but wait in '") + stall.name_of(id) + "': " + list_ranks(ranks) + ";";
  }
  for (const auto& [awaited, ranks] : waiting) {
    const char* const they = ranks.size() == 1 ? " waits itself for rank " : " wait themselves for rank ";
    text.append(" ").append(list_ranks(ranks)).append(they).append(std::to_string(awaited)).append(";");
  }
  if (!stopped.empty()) text += " stopped (SIGSTOP): " + list_ranks(stopped) + ";";
  if (!gone.empty()) text += " ended: " + list_ranks(gone) + ";";
  if (!silent.empty()) text += " do not answer (" + stall.why_silent + "): " + list_ranks(silent) + ";";
  if (!stall.gave_up.empty()) {
    text += " gave up waiting in a collective call, the communicator is unusable: " + list_ranks(stall.gave_up) + ";";
  }
  if (text.size() == so_far) text += " " + stall.if_all_arrived + ";";
  text.back() = '.';
  return text;
}

Report report_of_absent(Engine& engine, const Collective& collective, Rank rank, Seconds called) {
  if (const auto elsewhere = engine.waits_in(rank, &collective)) return {RankState::kElsewhere, *elsewhere};
  const Seconds quiet = engine.transport().now() - called;
  return {RankState::kNotArrived, 0, static_cast<std::uint32_t>(std::clamp(quiet * 1e3, 0.0, 4e9))};
}

}  // namespace pyc
