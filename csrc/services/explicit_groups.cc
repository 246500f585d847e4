#include "services/explicit_groups.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/splitmix.h"
#include "services/stall.h"
#include "services/wait_while_alive.h"

namespace pyc {
namespace {

/// What all members must have said alike. Not how often: a P-Reduce ends nowhere before all members have come to it, so
/// they cannot be at different ones of the same group.
std::uint64_t number_of(const std::vector<Rank>& members, const GroupData& data) {
  std::uint64_t number = mix(data.count);
  number = mix(number ^ static_cast<std::uint64_t>(data.type));
  number = mix(number ^ static_cast<std::uint64_t>(data.op));
  for (const Rank rank : members) number = mix(number ^ static_cast<std::uint64_t>(rank));
  return number;
}

}  // namespace

std::shared_ptr<ExplicitGroups> ExplicitGroups::join(std::shared_ptr<Engine> engine, Memory& memory,
                                                     const Nodes& nodes) {
  Engine& e = *engine;
  std::shared_ptr<ExplicitGroups> made(new ExplicitGroups(e, memory, nodes));
  e.exclusively([&] {
    if (e.closed()) throw ClosedError("the communicator is closed: by close() or by MPI_Finalize");
    e.enroll(kExplicitGroups, made);
  });
  e.wake();
  using Both = std::pair<std::shared_ptr<Engine>, std::shared_ptr<ExplicitGroups>>;
  auto both = std::make_shared<Both>(std::move(engine), made);
  return {both, made.get()};
}

ExplicitGroups::ExplicitGroups(Engine& engine, Memory& memory, const Nodes& nodes)
    : engine_(&engine),
      runs_(engine, memory, kExplicitGroups),
      on_node_(engine, memory, nodes, kExplicitGroups),
      reports_(static_cast<std::size_t>(engine.size())),
      called_(engine.transport().now()) {}

void ExplicitGroups::reduce(const std::vector<Rank>& members, const GroupData& data, const std::string& algorithm,
                            Seconds timeout, const Engine::Interrupt& interrupt) {
  engine_->check();
  if (closed_) throw ClosedError("preduce: the communicator is closed");
  if (failed_) {
    throw ClosedError("preduce is unusable on this communicator: an earlier P-Reduce, of " + list_ranks(members_) +
                      ", was given up");
  }
  const Seconds start = engine_->transport().now();
  const bool on_node = algorithm == "board";
  if (on_node) engine_->exclusively([this] { on_node_.prepare(); });
  failed_ = true;  // unless it ends well
  engine_->exclusively([&] {
    members_ = members;
    number_ = number_of(members, data);
    called_ = start;
    done_ = false;
    if (on_node) {
      on_node_.start(members_, number_, data);
    } else {
      runs_.start(members_, number_, data, algorithm);
    }
  });
  const FlightRecorder::Waiting waiting(engine_->recorder(), kExplicitGroups, "P-Reduce of " + list_ranks(members_));
  const auto is_done = [this] { return done_.load(std::memory_order_acquire); };
  const bool done = wait_while_alive(*engine_, is_done, timeout, interrupt, [this] { check_alive(); });
  if (!done) stall(engine_->transport().now() - start, interrupt);
  failed_ = false;
}

bool ExplicitGroups::advance() {
  if (!runs_.finish() && !on_node_.finish()) return false;
  called_ = engine_->transport().now();
  done_.store(true, std::memory_order_release);
  return true;
}

bool ExplicitGroups::uses_values() {
  return engine_->exclusively([this] { return is_running(); });
}

void ExplicitGroups::close() {
  engine_->exclusively([this] { closed_ = true; });
}

std::uint64_t ExplicitGroups::cache_hits() {
  return engine_->exclusively([this] { return runs_.cache_hits(); });
}

std::uint64_t ExplicitGroups::cache_misses() {
  return engine_->exclusively([this] { return runs_.cache_misses(); });
}

// ------------------------------------------------------------------------------------------------ stalls

/// RankFailedError if a rank of this node is gone that this one has met.
void ExplicitGroups::check_alive() {
  const std::vector<Rank> gone = engine_->exclusively([this] { return on_node_.gone(); });
  if (gone.empty()) return;
  throw RankFailedError("preduce: " + list_ranks(gone) + " died; it is unusable on this communicator now");
}

void ExplicitGroups::stall(Seconds waited, const Engine::Interrupt& interrupt) {
  constexpr Seconds kAnswerTime = 0.5;  // an engine answers by itself: who does not within this is stopped or gone
  engine_->exclusively([this] {
    std::fill(reports_.begin(), reports_.end(), Report{Standing::kComplete});
    for (const Rank rank : members_) {
      reports_[static_cast<std::size_t>(rank)] = {};
      tell(rank, Notice::kInquiry, number_);
    }
  });
  const auto all_answered = [this] {
    return engine_->exclusively([this] {
      return std::all_of(reports_.begin(), reports_.end(),
                         [](const Report& r) { return r.standing != Standing::kSilent; });
    });
  };
  engine_->wait(all_answered, kAnswerTime, interrupt);
  const std::vector<Report> reports = engine_->exclusively([this] { return reports_; });
  throw StallError(text_of_stall({.what = "P-Reduce of " + list_ranks(members_),
                                  .round = kNoRound,
                                  .waited = waited,
                                  .flush = false,
                                  .reports = reports,
                                  .gave_up = engine_->gave_up(),
                                  .name_of = [this](std::uint32_t id) { return engine_->name_of(id); },
                                  .why_silent = "they have never called preduce, or are stopped or gone"}) +
                   " preduce is unusable on this communicator now.");
}

/// How this rank stands to a P-Reduce.
Report ExplicitGroups::standing_to(std::uint64_t number) const {
  if (number == number_) return {is_running() ? Standing::kArrived : Standing::kComplete};
  if (is_running()) return {Standing::kElsewhere, kExplicitGroups};
  if (const auto elsewhere = engine_->waits_in(engine_->rank(), this)) return {Standing::kElsewhere, *elsewhere};
  const Seconds quiet = engine_->transport().now() - called_;
  return {Standing::kNotArrived, 0, static_cast<std::uint32_t>(std::clamp(quiet * 1e3, 0.0, 4e9))};
}

void ExplicitGroups::tell(Rank rank, Notice::Kind kind, std::uint64_t number, Report report) {
  const Notice notice{{kExplicitGroups, kind}, number, report};
  engine_->transport().notify(rank, std::as_bytes(std::span(&notice, 1)));
}

void ExplicitGroups::on_notice(Rank from, ConstBytes bytes) {
  NoticeHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.kind == NodeGroups::kHere) return on_node_.on_notice(from, bytes);
  Notice said;
  if (bytes.size() != sizeof said) throw InternalError("a notice has the wrong length");
  std::memcpy(&said, bytes.data(), sizeof said);
  if (said.header.kind == Notice::kInquiry) return tell(from, Notice::kReport, said.number, standing_to(said.number));
  if (said.number == number_) reports_[static_cast<std::size_t>(from)] = said.report;
}

}  // namespace pyc
