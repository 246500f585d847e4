#include "services/partial_allreduce/leader.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/patterns.h"

namespace pyc {
namespace {

std::uint32_t microseconds(Seconds seconds) { return static_cast<std::uint32_t>(std::clamp(seconds * 1e6, 0.0, 4e9)); }

}  // namespace

PartialAllreducePlan plan_for(const PartialAllreduceOptions& options, const Nodes& nodes, Rank rank) {
  // A round without elements still runs. Its plan has one element, of zero bytes.
  const std::size_t count = std::max<std::size_t>(options.count, 1);
  if (!options.on_device) {
    return plan_partial_allreduce(options.activation, options.algorithm, nodes.of(rank), nodes.count(), count);
  }
  const std::size_t width = size_of(elements_of(options.type, options.op).accumulator);
  return plan_staged_allreduce(options.activation, options.algorithm, nodes.of(rank), nodes.count(), count,
                               std::max<std::size_t>(options.piece_bytes / width, 1));
}

Leader::Leader(Engine& engine, ReductionMemory& memory, const PartialAllreduceOptions& options, const Nodes& nodes,
               Board& board, const StallInspector& inspector, PartialAllreducePlan plan, std::uint32_t id,
               Staging* staging)
    : engine_(engine),
      memory_(memory),
      options_(options),
      nodes_(nodes),
      board_(board),
      inspector_(inspector),
      staging_(staging),
      node_(nodes.of(engine.rank())),
      id_(id),
      messages_(engine, id),
      plan_(std::move(plan)),
      data_blocks_(plan_.schedule.blocks_of(plan_.data)),
      membership_(nodes.size()),
      requests_{{.round = 0}, {.round = 1}} {
  make_scratch();
}

/// Allocates the buffers that no run uses after its result. Runs share them: the next is armed after the result.
void Leader::make_scratch() {
  for (const BufferId buffer : plan_.schedule.unused_after(plan_.result)) {
    if (buffer == plan_.data.buffer || (plan_.staging && buffer == plan_.staging->buffer)) continue;
    const std::size_t bytes = plan_.schedule.buffers()[index(buffer)].count * element_bytes();
    scratch_.emplace_back(buffer, messages_memory().allocate(bytes));
    memory_bytes_ += bytes;
  }
}

bool Leader::advance() {
  bool moved = staging_ != nullptr && advance_devices();  // a failure is sent before later events of this rank
  if (board_.take_attention()) {
    read_board();
    moved = true;
  }
  if (grace_ends_ < Collective::kNever && engine_.transport().now() >= grace_ends_) {
    start(requests_of(round_).newest_arrival);
    moved = true;
  }
  if (phase_ == Phase::kActive && release()) {
    current_->run->pump();
    moved = true;
  }
  if (!draining_.empty()) retire();
  return moved;
}

// ------------------------------------------------------------------------------------------------ arrivals

/// Reads arrivals, departures and inquiries of this node's ranks.
void Leader::read_board() {
  if (phase_ == Phase::kEnded) return;
  std::vector<Rank> arrived;
  std::vector<Arrival> late;
  std::vector<std::pair<Rank, bool>> left;
  RoundNumber inquired = kNoRound;
  const Seconds now = engine_.transport().now();
  {
    const Lock lock(board_.mutex());
    const std::vector<Rank>& ranks = board_.shape().ranks;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const auto local = static_cast<Rank>(i);
      if (board_.ranks().arrived().contains(local) && !arrived_.contains(ranks[i])) arrived.push_back(ranks[i]);
      BoardSlot& slot = board_.ranks()[local];
      const RoundNumber missed = std::exchange(slot.missed, kNoRound);
      if (missed != kNoRound) late.push_back({missed, ranks[i], microseconds(now - slot.missed_at)});
      const bool closed = board_.ranks().closed().contains(local);
      const bool known = closed ? membership_.closed().contains(ranks[i]) : membership_.left().contains(ranks[i]);
      if (board_.ranks().left().contains(local) && !known) left.emplace_back(ranks[i], closed);
    }
    if (std::exchange(board_.inquiry().is_new, false)) inquired = board_.inquiry().round;
  }
  for (const Rank rank : arrived) arrive(rank);
  for (const Arrival& arrival : late) tell(arrival);
  for (const auto& [rank, closed] : left) leave(rank, closed);
  if (inquired != kNoRound) inquire(inquired);
}

void Leader::arrive(Rank rank) {
  arrived_.insert(rank);
  if (phase_ != Phase::kArmed) return;
  if (!counts_arrivals(options_.policy)) return reconsider();
  tell({.round = round_, .rank = rank, .age_us = 0});
}

/// Tells the coordinator that a rank has arrived in a round, or after it.
void Leader::tell(const Arrival& arrival) {
  const Rank coordinator = coordinator_node();
  if (coordinator == node_) {
    count(arrival);
  } else {
    send(coordinator, arrival);
  }
}

/// The node that counts arrivals: the root of the activation, if there is one. Another node would have to ask the root
/// to start, which would wake the root once more.
Rank Leader::coordinator_node() const {
  if (plan_.root != kNoRank) return plan_.root;
  // A grace that adapts needs all arrivals in one place.
  const RoundNumber round = adapts_grace(options_.policy) ? 0 : round_;
  return nodes_.of(coordinator_of(options_.policy, round, nodes_.size()));
}

Leader::Requests& Leader::requests_of(RoundNumber round) {
  Requests& requests = requests_[round % 2];
  if (requests.round != round) requests = {.round = round};
  return requests;
}

void Leader::count(const Arrival& arrival) {
  if (adapts_grace(options_.policy)) grace_.arrive(arrival.round, engine_.transport().now() - arrival.age_us * 1e-6);
  if (arrival.round < round_) return;  // the round has completed here
  Requests& requests = requests_of(arrival.round);
  requests.arrived.insert(arrival.rank);
  // Arrivals during the grace do not change the initiator, whose arrival made the round possible.
  if (grace_ends_ == Collective::kNever || arrival.round != round_) requests.newest_arrival = arrival.rank;
  reconsider();
}

/// A node below this one in the activation's tree asks to start the round that `initiator` has started.
void Leader::request_start(Rank initiator, RoundNumber round) {
  if (round < round_) return;
  Requests& requests = requests_of(round);
  requests.starter = std::min(requests.starter, initiator);
  reconsider();
}

void Leader::leave(Rank rank, bool for_good) {
  const Departure departure{.epoch = membership_.epoch(), .rank = rank, .closed = for_good ? 1U : 0U};
  membership_.leave(rank, departure.epoch, for_good);
  pass_on(departure);
  reconsider();
}

// ------------------------------------------------------------------------------------------------ rounds

/// Starts the armed round, or its grace, if the policy allows it.
void Leader::reconsider() {
  if (phase_ != Phase::kArmed) return;
  const Requests& requests = requests_of(round_);
  if (requests.starter != kNoRank && !membership_.all_left()) return start(requests.starter);
  const bool counts = counts_arrivals(options_.policy);
  const Verdict verdict = judge(options_.policy, round_, counts ? requests.arrived : arrived_, membership_.left(),
                                requests.newest_arrival, engine_.rank(), nodes_.size());
  if (verdict.initiator == kNoRank) return;
  if (!verdict.gives_grace) return start(verdict.initiator);
  if (grace_ends_ < Collective::kNever) return;
  const Seconds now = engine_.transport().now();
  grace_ends_ = now + (adapts_grace(options_.policy) ? grace_.reach(round_, now) : options_.policy.grace);
}

/// Fires this node's trigger, and asks the node above in the activation's tree to do the same.
void Leader::start(Rank initiator) {
  initiator_ = initiator;
  grace_ends_ = Collective::kNever;
  if (plan_.asks != kNoRank) send(plan_.asks, Start{.round = round_, .initiator = initiator});
  current_->run->fire(plan_.start);
  current_->run->pump();
}

/// The activation has reached this node: the board takes the data of its ranks.
void Leader::activated(Run& run) {
  phase_ = Phase::kActive;
  if (adapts_grace(options_.policy)) grace_.start(engine_.transport().now());
  engine_.recorder().note(id_, round_, FlightRecorder::State::kStarted);
  grace_ends_ = Collective::kNever;
  run.fire(plan_.start);  // uses up the trigger if another node started the round
  if (!is_lost_) {
    const Lock lock(board_.mutex());
    board_.round().start(initiator_);
  }
  release();
}

bool Leader::release() {
  if (draining_.size() > kMostDraining) return false;
  if (is_lost_) {
    take_part_without_data();
  } else if (!take_part()) {
    return false;
  }
  phase_ = Phase::kRunning;
  engine_.recorder().note(id_, round_, FlightRecorder::State::kRunning);
  current_->run->fire(plan_.release);
  return true;
}

bool Leader::take_part() {
  Presence own;
  Lock lock(board_.mutex());
  if (!work(lock)) return false;
  BoardRound::State& s = board_.round().state();
  if (s.sum == kNoBuffer) s.sum = board_.buffers().take();
  if (staging_ == nullptr) {  // on devices, the run sends from its own memory
    board_.buffers().retain(s.sum);
    current_->data = s.sum;
  }
  own.contributors = s.part.contributors;
  own.active = s.part.active;
  own.left = s.part.left;
  own.closed = s.part.closed;
  own.initiator = initiator_;
  current_->run->presence().assign(data_blocks_, own, {board_.round().members(), board_.shape().member_words()});
  current_->run->bind(plan_.data.buffer, board_.buffers().data(s.sum));
  return true;
}

void Leader::complete(Run& run) {
  if (run.failed()) is_lost_ = true;  // on another node, whose leader reports why
  const Presence& all = run.presence().at(data_blocks_.first);
  const auto members = run.presence().members(data_blocks_.first);
  const auto size = static_cast<std::uint32_t>(nodes_.size());
  // In a flush round every rank had left before its part was taken, so no data is pending anymore.
  const BoardRound::Outcome outcome{.initiator = all.initiator,
                                    .contributors = all.contributors,
                                    .active = all.active,
                                    .flush = all.left == size,
                                    .last = all.closed == size};
  if (!is_lost_) {
    engine_.recorder().note(id_, round_, FlightRecorder::State::kCompleted, {all.initiator, all.contributors, members});
  }
  if (outcome.flush) {
    membership_.next_epoch();
    grace_.pause();
  }
  draining_.push_back(std::exchange(current_, nullptr));
  ++round_;
  if (outcome.last) {
    phase_ = Phase::kEnded;
  } else {
    arm();
  }
  {
    const Lock lock(board_.mutex());
    if (is_lost_) {
      board_.round().abandon(outcome);
    } else {
      std::copy(members.begin(), members.end(), board_.round().members());
      board_.round().complete(outcome);
    }
  }
  if (!outcome.last) reconsider();
}

void Leader::arm() {
  if (idle_runs_.empty()) {
    auto pooled = std::make_unique<PooledRun>();
    const RunContext context{.schedule = plan_.schedule,
                             .peers = nodes_.leaders(),
                             .members = nodes_.size(),
                             .memory = messages_memory(),
                             .transport = engine_.transport(),
                             .open_transfers = engine_.open_transfers(),
                             .elements = board_.shape().elements,
                             .op = options_.op,
                             .element_bytes = element_bytes(),
                             .collective = id_,
                             .track_members = options_.track_members,
                             .trace = engine_.trace(),
                             .elsewhere = staging_ == nullptr ? std::nullopt : std::optional(plan_.data.buffer),
                             .copier = staging_};
    std::vector<BufferId> bound{plan_.data.buffer};
    if (plan_.staging) bound.push_back(plan_.staging->buffer);
    for (const auto& [buffer, memory] : scratch_) bound.push_back(buffer);
    pooled->run = std::make_unique<Run>(context, engine_.reserve_run(), bound, [this](Run& run, OpId op) {
      if (op == plan_.active) activated(run);
      if (op == plan_.result) complete(run);
    });
    if (plan_.staging) pooled->run->bind(plan_.staging->buffer, staging_->of_run(pool_of_runs_.size()));
    for (const auto& [buffer, memory] : scratch_) pooled->run->bind(buffer, memory.get());
    engine_.set_run(*pooled->run);
    memory_bytes_ += pooled->run->memory_bytes();
    idle_runs_.push_back(pooled.get());
    pool_of_runs_.push_back(std::move(pooled));
  }
  current_ = idle_runs_.back();
  idle_runs_.pop_back();
  phase_ = Phase::kArmed;
  arrived_ = {};
  initiator_ = kNoRank;
  current_->run->arm(round_);
}

void Leader::retire() {
  std::erase_if(draining_, [this](PooledRun* pooled) {
    if (!pooled->run->retired()) return false;
    const Lock lock(board_.mutex());
    board_.buffers().release(pooled->data);
    idle_runs_.push_back(pooled);
    return true;
  });
}

// ------------------------------------------------------------------------------------------------ messages

void Leader::inquire(RoundNumber round) {
  for (Rank node = 0; node < nodes_.count(); ++node) {
    if (node != node_) send(node, Inquiry{.round = round});
  }
  answer(node_, round);
}

/// Forwards a departure along a binomial tree rooted at the rank's node, which keeps departures of one origin in order.
/// A node where the collective has ended stops forwarding, because the last round shows all nodes that every rank has
/// closed.
void Leader::pass_on(const Departure& departure) {
  if (phase_ == Phase::kEnded) return;
  for (const Rank node : BinomialTree(node_, nodes_.count(), nodes_.of(departure.rank)).children()) {
    send(node, departure);
  }
}

void Leader::answer(Rank node, RoundNumber round) {
  const std::vector<Rank>& ranks = board_.shape().ranks;
  const std::vector<Report> reports = inspector_.reports_here(round);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    send(node, RankReport{.round = round, .rank = ranks[i], .report = reports[i]});
  }
}

void Leader::on_message(Rank from, ConstBytes message) {
  Messages::deliver(from, message,
                    Handlers{
                        [this](Rank, const Arrival& m) { count(m); },
                        [this](Rank, const Start& m) { request_start(static_cast<Rank>(m.initiator), m.round); },
                        [this](Rank, const Departure& m) {
                          pass_on(m);
                          membership_.leave(m.rank, m.epoch, m.closed != 0);
                          reconsider();
                        },
                        [this](Rank node_leader, const Inquiry& m) { answer(nodes_.of(node_leader), m.round); },
                        [this](Rank, const RankReport& m) {
                          const Lock lock(board_.mutex());
                          if (m.round == board_.inquiry().round) board_.reports()[m.rank] = m.report;
                        },
                        [this](Rank, const DeviceFailure& m, std::span<const char> text) { hear_failure(m, text); },
                    });
}

}  // namespace pyc
