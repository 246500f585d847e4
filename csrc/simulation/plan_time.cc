#include "simulation/plan_time.h"

#include <algorithm>
#include <queue>
#include <utility>
#include <variant>
#include <vector>

#include "algorithms/registry.h"
#include "core/error.h"
#include "engine/presence.h"
#include "services/partial_allreduce/plan.h"

namespace pyc {
namespace {

constexpr double kHeaderBytes = sizeof(Presence);
constexpr double kStartBytes = 24;  // of the active message that asks another rank to start

PartialAllreducePlan plan_of(const PlanTimeOptions& options, Rank rank) {
  if (!options.activation.empty()) {
    return plan_partial_allreduce(options.activation, options.algorithm, rank, options.size, options.count);
  }
  ScheduleBuilder s(rank, options.size);
  const Slice data = s.buffer(options.count, "data");
  const OpId start = s.trigger("start");
  s.gate(start);
  find_allreduce(options.algorithm).build(s, {data, data});
  s.ungate();
  const std::vector<OpId> last = s.writers(data);
  const OpId result = last.empty() ? start : s.signal("result", last);
  return {.schedule = std::move(s).build(),
          .data = data,
          .start = start,
          .active = start,
          .release = start,
          .result = result,
          .asks = kNoRank,
          .root = kNoRank,
          .staging = {}};
}

/// All ranks. The order of a rank's actions is the order in engine/run.cc and transport/in_process.cc.
class PlanTimer {
 public:
  explicit PlanTimer(const PlanTimeOptions& options) : options_(options) {
    const Rank ranks = options.one_for_all ? 1 : options.size;
    ranks_.reserve(static_cast<std::size_t>(ranks));
    for (Rank rank = 0; rank < ranks; ++rank) ranks_.emplace_back(plan_of(options, rank));
  }

  Seconds run() {
    for (Rank rank = 0; std::cmp_less(rank, ranks_.size()); ++rank) begin(rank);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      arrive(event);
    }
    for (const State& state : ranks_) {
      if (state.done < 0) throw InternalError("the plans of " + options_.algorithm + " do not end");
      last_ = std::max(last_, state.done);
    }
    return last_;
  }

 private:
  enum class Receive : std::uint8_t { kNone, kPosted, kArrived };

  struct State {
    explicit State(PartialAllreducePlan made) : plan(std::move(made)), seen(plan.schedule.ops().size()) {
      receive.resize(seen.size());
      const auto ops = plan.schedule.ops();
      for (std::size_t i = 0; i < ops.size(); ++i) {
        if (const auto* recv = std::get_if<Recv>(&ops[i].action)) receives.push_back({recv->from, recv->channel, i});
      }
      by_message = receives;
      std::sort(by_message.begin(), by_message.end());
    }
    struct Expected {
      Rank from;
      std::uint32_t channel;
      std::size_t op;
      auto operator<=>(const Expected&) const = default;
    };
    PartialAllreducePlan plan;
    std::vector<std::uint32_t> seen;
    std::vector<Receive> receive;
    std::vector<Expected> receives;  // in the order of the plan
    std::vector<Expected> by_message;
    std::vector<OpId> ready;
    std::size_t next_ready = 0;
    std::vector<OpId> sent;
    std::vector<OpId> matched;
    std::size_t sends = 0;
    Seconds busy_until = 0;
    Seconds computed = 0;
    bool has_result = false;
    Seconds done = -1;
  };

  struct Event {
    Seconds time;
    std::uint64_t order;
    Rank to;
    std::size_t op;  // kAsked: another rank asks this one to start, which has started already
    bool is_taken;
    bool operator>(const Event& other) const { return time != other.time ? time > other.time : order > other.order; }
  };
  static constexpr std::size_t kAsked = ~std::size_t{0};

  State& at(Rank rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  void begin(Rank rank) {
    State& s = at(rank);
    const auto ops = s.plan.schedule.ops();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].need == 0 && !std::holds_alternative<Trigger>(ops[i].action)) s.ready.push_back(OpId(i));
    }
    pump(s, rank);
    if (s.plan.asks != kNoRank) transmit(s, s.plan.asks, kAsked, kStartBytes);
    fire(s, s.plan.start);
    pump(s, rank);
    drive(rank);
  }

  void transmit(State& sender, Rank to, std::size_t op, double bytes) {
    sender.busy_until =
        std::max(sender.busy_until, now_) + options_.network.overhead + options_.network.gap_per_byte * bytes;
    events_.push({sender.busy_until + options_.network.latency, order_++, to, op, false});
  }

  void arrive(const Event& event) {
    State& s = at(event.to);
    const Seconds taken = std::max(s.busy_until, now_) + options_.network.overhead;
    if (!event.is_taken && taken > now_) {
      s.busy_until = taken;
      events_.push({taken, order_++, event.to, event.op, true});
      return;
    }
    if (event.op == kAsked) return;
    if (s.receive[event.op] == Receive::kPosted) {
      complete(s, OpId(event.op));
      pump(s, event.to);
    } else {
      s.receive[event.op] = Receive::kArrived;
    }
    drive(event.to);
  }

  void drive(Rank rank) {
    State& s = at(rank);
    while (!s.sent.empty() || !s.matched.empty()) {
      for (const OpId op : std::exchange(s.sent, {})) {
        complete(s, op);
        pump(s, rank);
      }
      for (const OpId op : std::exchange(s.matched, {})) {
        complete(s, op);
        pump(s, rank);
      }
    }
    if (s.has_result && s.done < 0) s.done = std::max(now_, s.computed);
  }

  void fire(State& s, OpId trigger) {
    if (s.seen[index(trigger)]++ == 0) s.ready.push_back(trigger);
  }

  void complete(State& s, OpId id) {
    for (const OpId next : s.plan.schedule.op(id).next) {
      if (++s.seen[index(next)] == s.plan.schedule.op(next).need) s.ready.push_back(next);
    }
  }

  void pump(State& s, Rank rank) {
    while (s.next_ready < s.ready.size()) execute(s, rank, s.ready[s.next_ready++]);
    s.ready.clear();
    s.next_ready = 0;
  }

  void execute(State& s, Rank rank, OpId id) {
    const Action& action = s.plan.schedule.op(id).action;
    if (const auto* send = std::get_if<Send>(&action)) {
      const bool is_token = send->from.buffer != s.plan.data.buffer && !options_.activation.empty();
      const double bytes = is_token ? 0 : options_.element_bytes * static_cast<double>(send->from.count);
      if (options_.one_for_all) {
        transmit(s, 0, s.receives.at(s.sends++).op, kHeaderBytes + bytes);
      } else {
        const State::Expected message{rank, send->channel, 0};
        const auto& expected = at(send->to).by_message;
        const auto met = std::lower_bound(expected.begin(), expected.end(), message);
        transmit(s, send->to, met->op, kHeaderBytes + bytes);
      }
      s.sent.push_back(id);
      return;
    }
    if (std::holds_alternative<Recv>(action)) {
      if (s.receive[index(id)] == Receive::kArrived) {
        s.matched.push_back(id);
      } else {
        s.receive[index(id)] = Receive::kPosted;
      }
      return;
    }
    if (const auto* reduce = std::get_if<Reduce>(&action)) {
      s.busy_until = std::max(s.busy_until, now_) +
                     options_.reduce_per_byte * options_.element_bytes * static_cast<double>(reduce->into.count);
      s.computed = s.busy_until;
    }
    if (id == s.plan.active && !options_.activation.empty()) fire(s, s.plan.release);
    if (id == s.plan.result) s.has_result = true;
    complete(s, id);
  }

  const PlanTimeOptions& options_;
  std::vector<State> ranks_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  Seconds now_ = 0;
  Seconds last_ = 0;
};

}  // namespace

Seconds time_of_plans(const PlanTimeOptions& options) {
  if (options.one_for_all && !options.activation.empty()) {
    throw std::invalid_argument("time_of_plans: ranks differ in an activation");
  }
  return PlanTimer(options).run();
}

}  // namespace pyc
