#include "simulation/parameter_server_simulation.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <queue>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "engine/collective.h"

namespace pyc::server {
namespace {

class ServerSimulation {
 public:
  explicit ServerSimulation(const ServerScript& script);
  ServerHistory run();

 private:
  enum class What : std::uint8_t { kPush, kGiveUp, kReturn };
  struct Event {
    Seconds time;
    std::uint64_t order;  // of planning, for equal times
    What what;
    Worker worker;

    bool operator>(const Event& other) const { return std::tie(time, order) > std::tie(other.time, other.order); }
  };
  struct Accumulator {
    double sum = 0;
    std::vector<std::pair<std::uint64_t, Version>> pushes;  // number, and version of the weights
  };
  enum class State : std::uint8_t { kWorking, kAway, kEnded, kVanished };
  struct Application {
    State state = State::kWorking;
    std::uint64_t push = 0;  // the current or the last one
    double weights = 0;      // that it has received
    Seconds came = 0;        // time of its last push or trial
    Accumulator accumulator, next;
  };

  Table table() { return {row_, rows_}; }
  std::size_t index(Worker worker, std::uint64_t push) const { return worker * script_.max_pushes + push; }

  void plan(Seconds time, What what, Worker worker) { events_.push({time, planned_++, what, worker}); }
  void go_on(Worker worker);
  void compute(Worker worker);
  void handle(const Event& event);
  void push(Worker worker);
  void give_up(Worker worker);
  void set_presence(Worker worker, Presence presence);
  void take_out_missing();
  void apply(const Verdict& verdict);
  void update(bool keeps);
  template <class What>
  void note(What what) {
    history_.entries.emplace_back(std::move(what));
  }
  void note_superstep();
  void let_go();
  void give_weights(Worker worker);
  std::string who_is_stuck() const;

  const ServerScript& script_;
  std::unique_ptr<const Policy> policy_;
  std::vector<WorkerRow> rows_;
  ServerRow row_;
  std::vector<Application> applications_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t planned_ = 0;
  Seconds now_ = 0;
  double weights_ = 0;
  // Of the current superstep: a policy forgets them at its end.
  Seconds begun_ = 0, predicted_ = kUnknown;
  std::uint64_t superstep_ = 0;
  ServerHistory history_;
};

std::unique_ptr<const Policy> policy_of(const ServerScript& script) {
  Options options;
  options.sync = script.sync;
  for (std::size_t w = 0; w < script.workers; ++w) options.workers.push_back(static_cast<Rank>(w));
  return make_policy(options);
}

ServerSimulation::ServerSimulation(const ServerScript& script)
    : script_(script), policy_(policy_of(script)), rows_(script.workers), applications_(script.workers) {}

ServerHistory ServerSimulation::run() {
  for (Worker w = 0; w < rows_.size(); ++w) {
    rows_[w].released = 0;
    go_on(w);
  }
  std::uint64_t handled = 0;
  while (script_.max_events == 0 || handled++ < script_.max_events) {
    const Seconds next = events_.empty() ? Collective::kNever : events_.top().time;
    const Seconds deadline = policy_->deadline(table());
    if (std::min(next, deadline) == Collective::kNever) break;
    if (deadline < next) {
      now_ = std::max(now_, deadline);
      take_out_missing();
    } else {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      handle(event);
    }
    let_go();
  }
  history_.stuck = who_is_stuck();
  for (Worker w = 0; w < rows_.size(); ++w) {
    history_.clocks.push_back(rows_[w].clock);
    for (const Accumulator* each : {&applications_[w].accumulator, &applications_[w].next}) {
      for (const auto& [number, version] : each->pushes) history_.gathered.push_back({w, number, 0, 0});
    }
  }
  return std::move(history_);
}

// ------------------------------------------------------------------------------------------------ workers

/// A released worker computes, unless it has ended or is absent for some time.
void ServerSimulation::go_on(Worker worker) {
  Application& a = applications_[worker];
  if (a.push >= script_.pushes[worker]) {
    a.state = State::kEnded;
    set_presence(worker, Presence::kLeft);
    return;
  }
  for (const ServerScript::Absence& absence : script_.absences) {
    if (a.push == 0 || absence.worker != worker || absence.push != a.push - 1) continue;
    a.state = State::kAway;
    set_presence(worker, Presence::kLeft);
    plan(now_ + absence.time, What::kReturn, worker);
    return;
  }
  compute(worker);
}

void ServerSimulation::compute(Worker worker) {
  Application& a = applications_[worker];
  a.state = State::kWorking;
  if (a.push == script_.vanishes[worker]) {
    a.state = State::kVanished;
    return;
  }
  const Seconds work = script_.work[index(worker, a.push)], messages = 2 * script_.latency;
  const std::vector<Seconds>& allotted = script_.sync.allotted;
  const Seconds most = allotted.empty() || !script_.gives_up ? Collective::kNever
                       : allotted.size() == 1                ? allotted[0]
                                                             : allotted[worker];
  plan(now_ + messages + std::min(work, most), work > most ? What::kGiveUp : What::kPush, worker);
}

// ------------------------------------------------------------------------------------------------ the server

void ServerSimulation::handle(const Event& event) {
  const Worker w = event.worker;
  switch (event.what) {
    case What::kPush:
      if (rows_[w].presence != Presence::kPresent) set_presence(w, Presence::kPresent);
      push(w);
      break;
    case What::kGiveUp:
      if (rows_[w].presence != Presence::kPresent) set_presence(w, Presence::kPresent);
      give_up(w);
      break;
    case What::kReturn:
      set_presence(w, Presence::kPresent);
      give_weights(w);
      compute(w);
      break;
  }
}

void ServerSimulation::push(Worker worker) {
  WorkerRow& row = rows_[worker];
  Application& a = applications_[worker];
  ++row.clock;
  row.interval = now_ - row.released;
  row.last_push = a.came = now_;
  const Version delay = row_.version - row.version;
  const Verdict verdict = policy_->on_push(table(), worker, row.version, now_);
  note(ServerHistory::Push{now_, worker, a.push, row.version, delay, false, verdict.use});
  if (verdict.use) {
    Accumulator& into = verdict.next ? a.next : a.accumulator;
    into.sum += script_.values[index(worker, a.push)] + script_.slope * a.weights;
    into.pushes.emplace_back(a.push, row.version);
  }
  apply(verdict);
  row.waits = 1;
}

void ServerSimulation::give_up(Worker worker) {
  WorkerRow& row = rows_[worker];
  Application& a = applications_[worker];
  ++row.clock;
  a.came = now_;
  const Version delay = row_.version - row.version;
  const Verdict verdict = policy_->on_give_up(table(), worker, now_);
  note(ServerHistory::Push{now_, worker, a.push, row.version, delay, true, false});
  apply(verdict);
  row.waits = 1;
}

void ServerSimulation::set_presence(Worker worker, Presence presence) {
  rows_[worker].presence = presence;
  note(ServerHistory::PresenceChange{now_, worker, presence});
  apply(policy_->on_presence(table(), worker, now_));
}

void ServerSimulation::take_out_missing() {
  for (Worker w = policy_->missing(table(), now_); w < rows_.size(); w = policy_->missing(table(), now_)) {
    set_presence(w, Presence::kMissing);
    let_go();
  }
}

void ServerSimulation::apply(const Verdict& verdict) {
  if (verdict.update) update(verdict.keep);
  if (verdict.turn) {
    for (Application& a : applications_) a.accumulator = std::exchange(a.next, {});
  }
  note_superstep();
}

void ServerSimulation::update(bool keeps) {
  double sum = 0;
  std::vector<ServerHistory::Term> terms;
  for (Worker w = 0; w < rows_.size(); ++w) {
    const double weight = rows_[w].weight;
    if (weight == 0) continue;
    Accumulator& accumulator = applications_[w].accumulator;
    if (accumulator.pushes.empty()) throw std::logic_error("an update by an accumulator that has no gradient");
    sum += weight * accumulator.sum;
    for (const auto& [number, version] : accumulator.pushes) {
      terms.push_back({w, number, row_.version - version, weight});
    }
    if (!keeps) accumulator = {};
  }
  weights_ += sum;
  ++row_.version;
  note(ServerHistory::Update{now_, weights_, std::move(terms)});
}

void ServerSimulation::note_superstep() {
  if (row_.superstep == superstep_) {
    predicted_ = row_.barrier;
    return;
  }
  Seconds first = now_;
  std::vector<Clock> clocks;
  for (Worker w = 0; w < rows_.size(); ++w) {
    clocks.push_back(rows_[w].clock);
    if (rows_[w].presence == Presence::kPresent) first = std::min(first, applications_[w].came);
  }
  note(ServerHistory::Superstep{now_, now_ - begun_, now_ - first, predicted_, std::move(clocks)});
  superstep_ = row_.superstep;
  begun_ = now_;
  predicted_ = kUnknown;
}

void ServerSimulation::let_go() {
  for (bool moved = true; moved;) {
    moved = false;
    for (Worker w = 0; w < rows_.size(); ++w) {
      if (rows_[w].waits == 0 || !policy_->may_go(table(), w)) continue;
      give_weights(w);
      ++applications_[w].push;
      go_on(w);
      moved = true;
    }
  }
}

void ServerSimulation::give_weights(Worker worker) {
  WorkerRow& row = rows_[worker];
  Application& a = applications_[worker];
  note(ServerHistory::Release{now_, worker, row.clock, row.waits != 0 ? now_ - a.came : 0});
  row.waits = 0;
  row.version = row_.version;
  row.released = now_;
  a.weights = weights_;
  policy_->on_release(table(), worker, now_);
}

std::string ServerSimulation::who_is_stuck() const {
  std::string who;
  for (Worker w = 0; w < applications_.size(); ++w) {
    const State state = applications_[w].state;
    if (state == State::kEnded || state == State::kVanished) continue;
    who += (who.empty() ? "" : ", ") + std::to_string(w);
  }
  return who;
}

}  // namespace
}  // namespace pyc::server

namespace pyc {

ServerHistory simulate_server(const ServerScript& script) { return server::ServerSimulation(script).run(); }

}  // namespace pyc
