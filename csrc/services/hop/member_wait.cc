// How a call waits, and what it says of the neighbors that do not come.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
#include "engine/stall_warning.h"
#include "services/common/stall.h"
#include "services/common/waiting.h"
#include "services/hop/member.h"

namespace pyc {
namespace {

using What = HopAwaited::What;

std::string text_of(What what, Iteration iteration) {
  const std::string number = std::to_string(iteration);
  switch (what) {
    case What::kUpdate:
      return "the update of iteration " + number + " of ";
    case What::kAnyUpdate:
      return "an update of ";
    case What::kToken:
      return "a token for iteration " + number + " of ";
    case What::kAnyToken:
      return "a token of ";
    case What::kAck:
      return "the acknowledgement of iteration " + number + " of ";
    case What::kTransfer:
      return "the end of a transfer before iteration " + number + " to ";
    case What::kRoom:
      return "room for the update of iteration " + number + " at ";
  }
  return {};
}

}  // namespace

void HopMember::check_open() const {
  engine_->check();
  if (closed_) throw ClosedError("'" + options_.name + "' is closed");
}

// ------------------------------------------------------------------------------------------------ waiting

void HopMember::wait_for(const std::string& what, const std::function<bool()>& act, Seconds timeout,
                         const Engine::Interrupt& interrupt) {
  const auto done = [&] {
    if (closed_) throw ClosedError("'" + options_.name + "' was closed meanwhile");
    return act();
  };
  called_ = engine_->transport().now();
  if (done()) return;
  const InCall in_call(in_call_);
  const FlightRecorder::Waiting waiting(engine_->recorder(), id_, text_of_awaited());
  const Seconds start = engine_->transport().now();
  const auto wait_once = [&](Seconds limit) {
    return wait_while_alive(
        *engine_, done, limit, interrupt, [this] { check_alive(); },
        [&](Seconds longest) { return sleep(longest, done); });
  };
  const auto why_not = [&] { return explain(what, engine_->transport().now() - start, done, interrupt); };
  if (wait_and_warn(*engine_, timeout, wait_once, why_not)) return;
  const std::string text = why_not();
  if (!done()) throw StallError(text);
}

/// Where all that is waited for is on this node, whose ranks ring.
bool HopMember::sleep(Seconds limit, const std::function<bool()>& done) {
  const std::uint32_t rings = board_->rings();  // before looking
  if (done()) return true;
  const std::vector<HopAwaited> missing = awaited();
  const bool all_ring = !missing.empty() && std::all_of(missing.begin(), missing.end(),
                                                        [this](const HopAwaited& a) { return is_local(a.rank); });
  if (all_ring) board_->sleep(rings, limit);
  return all_ring;
}

/// RankFailedError if a rank of this node is gone.
void HopMember::check_alive() const {
  const std::vector<Rank> dead = engine_->failures().dead_if_gone(board_->gone());
  if (!dead.empty()) throw died("'" + options_.name + "'", dead, "it is unusable now");
}

// ------------------------------------------------------------------------------------------------ stalls

/// Such as "the update of iteration 5 of ranks 1, 3; a token for iteration 6 of rank 2".
std::string HopMember::text_of_awaited() const {
  std::map<std::pair<What, Iteration>, std::set<Rank>> ranks;
  for (const HopAwaited& a : awaited()) ranks[{a.what, a.iteration}].insert(a.rank);
  std::string text;
  for (const auto& [key, of] : ranks) {
    text += (text.empty() ? "" : "; ") + text_of(key.first, key.second) + list_ranks({of.begin(), of.end()});
  }
  return text;
}

/// Asks those who have not come, and says what is known of them.
std::string HopMember::explain(const std::string& what, Seconds waited, const std::function<bool()>& done,
                               const Engine::Interrupt& interrupt) {
  const std::string missing = text_of_awaited();
  engine_->exclusively([&] {
    std::fill(reports_.begin(), reports_.end(), Report{RankState::kComplete});
    for (const HopAwaited& a : awaited()) {
      Report& report = reports_[static_cast<std::size_t>(a.rank)];
      report = {};
      if (is_local(a.rank) && board_->state(a.rank) == ProcessState::kStopped) {
        report.state = RankState::kStopped;
      } else {
        inquire(a);
      }
    }
  });
  const auto reports = [this] { return engine_->exclusively([this] { return reports_; }); };
  const auto is_known = [&] {
    const std::vector<Report> all = reports();
    return std::none_of(all.begin(), all.end(), [](const Report& r) { return r.state == RankState::kSilent; });
  };
  engine_->wait([&] { return done() || is_known(); }, kAnswerTime, interrupt);
  return text_of_stall({.what = kind_ + " '" + options_.name + "', " + what +
                                (missing.empty() ? std::string() : " (waits for " + missing + ")"),
                        .round = kNoRound,
                        .waited = waited,
                        .flush = false,
                        .reports = reports(),
                        .gave_up = engine_->gave_up(),
                        .name_of = [this](std::uint32_t id) { return engine_->name_of(id); },
                        .if_all_arrived = "every neighbor has come: it is slow, call again"});
}

/// Whether it has done what is waited for; kNeverIteration: it has not, for this rank would know.
void HopMember::inquire(const HopAwaited& of) {
  const auto ask = [&](Iteration iteration, bool of_update) {
    mailbox().send(of.rank, hop::Inquiry{iteration, of_update ? 1U : 0U});
  };
  switch (of.what) {
    case What::kUpdate:
      return ask(of.iteration, true);
    case What::kToken:
      return ask(of.iteration - options_.max_ig, false);
    case What::kAnyUpdate:
    case What::kAnyToken:
    case What::kRoom:
      return ask(kNeverIteration, false);
    case What::kAck:
      return ask(of.iteration + 1, false);  // it acknowledges before it goes on
    case What::kTransfer:
      return ask(of.iteration, false);
  }
}

/// Where the engine answers, and the application may be anywhere.
Report HopMember::own_report(const hop::Inquiry& inquiry) const {
  const bool has_come =
      inquiry.of_update != 0 ? sent_.load() > inquiry.iteration : own_standing().iteration.load() >= inquiry.iteration;
  if (has_come) return {RankState::kArrived};
  if (closed_) return {RankState::kLeft};
  return report_of_absent(*engine_, *this, rank(), called_.load());
}

}  // namespace pyc
