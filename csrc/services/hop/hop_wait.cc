// How a call of Hop waits, and what it says of the neighbors that do not come.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
#include "engine/stall_warning.h"
#include "services/common/stall.h"
#include "services/common/waiting.h"
#include "services/hop/hop.h"

namespace pyc {
namespace {

using What = HopAwaited::What;

std::string text_of(What what, Iteration iteration) {
  const std::string number = std::to_string(iteration);
  switch (what) {
    case What::kUpdate:
      return "the update of iteration " + number + " of ";
    case What::kToken:
      return "a token for iteration " + number + " of ";
    case What::kAck:
      return "the acknowledgement of iteration " + number + " of ";
    case What::kTransfer:
      return "the end of a transfer before iteration " + number + " to ";
  }
  return {};
}

}  // namespace

// ------------------------------------------------------------------------------------------------ the application

void Hop::check_open() const {
  engine_->check();
  if (closed_) throw ClosedError("'" + options_.name + "' is closed");
}

void Hop::enter(Iteration last, Seconds timeout, const Engine::Interrupt& interrupt) {
  check_open();
  if (worker_->computes() || worker_->in_step()) {
    throw std::runtime_error("'" + options_.name + "': iteration " + std::to_string(worker_->iteration()) +
                             " has not ended; call step first");
  }
  const std::string from =
      worker_->participated() == 0 ? "the first iteration" : "the iteration after " + std::to_string(iteration(rank()));
  wait_for(from, [&] { return try_enter(last); }, timeout, interrupt);
}

void Hop::step(const std::byte* delta, Seconds timeout, const Engine::Interrupt& interrupt) {
  check_open();
  if (!worker_->computes() && !worker_->in_step()) {
    throw std::runtime_error("'" + options_.name + "': step: no iteration has begun; take one of iterations() first");
  }
  wait_for(
      "step of iteration " + std::to_string(worker_->iteration()), [&] { return try_step(delta); }, timeout, interrupt);
}

// ------------------------------------------------------------------------------------------------ waiting

void Hop::wait_for(const std::string& what, const std::function<bool()>& done, Seconds timeout,
                   const Engine::Interrupt& interrupt) {
  called_ = engine_->transport().now();
  if (done()) return;
  const InCall in_call(in_call_);
  const FlightRecorder::Waiting waiting(engine_->recorder(), id_, text_of_awaited());
  const Seconds start = engine_->transport().now();
  const auto wait_once = [&](Seconds limit) {
    return wait_while_alive(
        *engine_, done, limit, interrupt, [this] { check_alive(); },
        [this](Seconds longest) { return sleep(longest); });
  };
  const auto why_not = [&] { return explain(what, engine_->transport().now() - start, done, interrupt); };
  if (wait_and_warn(*engine_, timeout, wait_once, why_not)) return;
  const std::string text = why_not();
  if (!done()) throw StallError(text);
}

/// Where all that is waited for is on this node, whose ranks ring.
bool Hop::sleep(Seconds limit) {
  const std::uint32_t rings = board_->rings();  // before looking
  const std::vector<HopAwaited> missing = worker_->awaited();
  const bool on_node =
      std::all_of(missing.begin(), missing.end(), [this](const HopAwaited& a) { return is_local(a.rank); });
  if (on_node && !missing.empty()) board_->sleep(rings, limit);
  return on_node;
}

/// RankFailedError if a rank of this node is gone.
void Hop::check_alive() const {
  const std::vector<Rank> dead = engine_->failures().dead_if_gone(board_->gone());
  if (!dead.empty()) throw died("'" + options_.name + "'", dead, "it is unusable now");
}

// ------------------------------------------------------------------------------------------------ stalls

/// Such as "the update of iteration 5 of ranks 1, 3; a token for iteration 6 of rank 2".
std::string Hop::text_of_awaited() const {
  std::map<std::pair<What, Iteration>, std::set<Rank>> ranks;
  for (const HopAwaited& a : worker_->awaited()) ranks[{a.what, a.iteration}].insert(a.rank);
  std::string text;
  for (const auto& [key, of] : ranks) {
    text += (text.empty() ? "" : "; ") + text_of(key.first, key.second) + list_ranks({of.begin(), of.end()});
  }
  return text;
}

/// Asks those who have not come, and says what is known of them.
std::string Hop::explain(const std::string& what, Seconds waited, const std::function<bool()>& done,
                         const Engine::Interrupt& interrupt) {
  const std::string awaited = text_of_awaited();
  engine_->exclusively([&] {
    std::fill(reports_.begin(), reports_.end(), Report{RankState::kComplete});
    for (const HopAwaited& a : worker_->awaited()) {
      Report& report = reports_[static_cast<std::size_t>(a.rank)];
      report = {};
      if (is_local(a.rank) && board_->state(a.rank) == ProcessState::kStopped) {
        report.state = RankState::kStopped;
      } else {
        const bool of_update = a.what == What::kUpdate;
        const Iteration entered = a.what == What::kToken ? a.iteration - options_.max_ig : a.iteration;
        mailbox().send(a.rank, hop::Inquiry{of_update ? a.iteration : entered, of_update ? 1U : 0U});
      }
    }
  });
  const auto reports = [this] { return engine_->exclusively([this] { return reports_; }); };
  const auto is_known = [&] {
    const std::vector<Report> all = reports();
    return std::none_of(all.begin(), all.end(), [](const Report& r) { return r.state == RankState::kSilent; });
  };
  engine_->wait([&] { return done() || is_known(); }, kAnswerTime, interrupt);
  return text_of_stall({.what = "hop '" + options_.name + "', " + what +
                                (awaited.empty() ? std::string() : " (waits for " + awaited + ")"),
                        .round = kNoRound,
                        .waited = waited,
                        .flush = false,
                        .reports = reports(),
                        .gave_up = engine_->gave_up(),
                        .name_of = [this](std::uint32_t id) { return engine_->name_of(id); },
                        .if_all_arrived = "every neighbor has come: it is slow, call again"});
}

/// Where the engine answers, and the application may be anywhere.
Report Hop::own_report(const hop::Inquiry& inquiry) const {
  const bool has_come =
      inquiry.of_update != 0 ? sent_.load() > inquiry.iteration : iteration(rank()) >= inquiry.iteration;
  if (has_come) return {RankState::kArrived};
  if (closed_) return {RankState::kLeft};
  return report_of_absent(*engine_, *this, rank(), called_.load());
}

}  // namespace pyc
