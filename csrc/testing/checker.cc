#include "testing/checker.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "testing/findings.h"
#include "testing/symbolic_run.h"

namespace pyc {
namespace {

// ------------------------------------------------------------------------------------------------ races

/// Which ops of a plan are certain to have completed when another op fires.
class Order {
 public:
  explicit Order(const Schedule& plan) : before_(plan.ops().size()) {
    std::vector<std::vector<OpId>> predecessors(plan.ops().size());
    std::vector<std::uint32_t> implied(plan.ops().size());
    for (std::size_t i = 0; i < plan.ops().size(); ++i) {  // edges point forward
      // An op is certain if every choice of `need` predecessors implies it: fewer than `need` predecessors do not.
      std::fill(implied.begin(), implied.end(), 0);
      for (const OpId p : predecessors[i]) {
        ++implied[index(p)];
        for (std::size_t earlier = 0; earlier < index(p); ++earlier) implied[earlier] += before_[index(p)][earlier];
      }
      const Op& op = plan.ops()[i];
      before_[i].resize(i);
      for (std::size_t earlier = 0; earlier < i; ++earlier) {
        before_[i][earlier] = implied[earlier] > op.predecessors - op.need;
      }
      for (const OpId next : op.next) predecessors[index(next)].push_back(OpId(i));
    }
  }

  /// In either order.
  bool certain(OpId a, OpId b) const {
    return before_[std::max(index(a), index(b))][std::min(index(a), index(b))] != 0;
  }

 private:
  std::vector<std::vector<std::uint8_t>> before_;  // [op][earlier op]
};

struct OpAccess {
  OpId op;
  Access access;
};

/// `owned`: accesses of the run's owner when a trigger or a signal fires.
void check_races(const Schedule& plan, std::span<const OpAccess> owned, Findings& findings) {
  std::vector<std::vector<OpAccess>> by_buffer(plan.buffers().size());
  const auto note = [&](OpId op, const Access& access) {
    by_buffer[index(access.slice.buffer)].push_back({op, access});
  };
  for (std::size_t i = 0; i < plan.ops().size(); ++i) {
    for (const Access& access : accesses(plan.ops()[i].action)) note(OpId(i), access);
  }
  for (const OpAccess& o : owned) note(o.op, o.access);

  const Order order(plan);
  for (const auto& touched : by_buffer) {
    for (std::size_t b = 0; b < touched.size(); ++b) {
      for (std::size_t a = 0; a < b; ++a) {
        const bool conflict = (touched[a].access.writes || touched[b].access.writes) &&
                              overlap(touched[a].access.slice, touched[b].access.slice);
        if (!conflict || order.certain(touched[a].op, touched[b].op)) continue;
        findings.add(plan, touched[b].op, "races with " + plan.describe(touched[a].op) + ", nothing orders them");
      }
    }
  }
}

// ------------------------------------------------------------------------------------------------ messages

Matching match_messages(std::span<const Schedule> plans, Findings& findings) {
  struct Message {
    const Schedule* plan;
    OpId op;
    std::size_t count;
  };
  using Key = std::pair<Rank, std::uint32_t>;  // receiver, channel
  Matching matching;
  for (const Schedule& plan : plans) matching.emplace_back(plan.ops().size());

  std::vector<std::map<Key, Message>> sent(plans.size());  // per sender
  for (const Schedule& plan : plans) {
    for (std::size_t i = 0; i < plan.ops().size(); ++i) {
      const auto* send = std::get_if<Send>(&plan.ops()[i].action);
      if (send == nullptr) continue;
      const Message message{&plan, OpId(i), send->from.count};
      const bool fresh =
          sent[static_cast<std::size_t>(plan.rank())].emplace(Key{send->to, send->channel}, message).second;
      if (!fresh) findings.add(plan, OpId(i), "its channel is used twice");
    }
  }
  for (const Schedule& plan : plans) {
    for (std::size_t i = 0; i < plan.ops().size(); ++i) {
      const auto* recv = std::get_if<Recv>(&plan.ops()[i].action);
      if (recv == nullptr) continue;
      const auto sender = static_cast<std::size_t>(recv->from);
      const auto found = sent[sender].find({plan.rank(), recv->channel});
      if (found == sent[sender].end()) {
        findings.add(plan, OpId(i), "rank " + std::to_string(recv->from) + " sends no such message");
        continue;
      }
      const Message& message = found->second;
      if (message.count != recv->into.count) {
        findings.add(plan, OpId(i),
                     std::to_string(recv->into.count) + " elements, but " + Findings::place(*message.plan, message.op) +
                         " sends " + std::to_string(message.count));
      }
      matching[sender][index(message.op)] = OpId(i);
      matching[static_cast<std::size_t>(plan.rank())][i] = message.op;
      sent[sender].erase(found);
    }
  }
  for (const auto& left : sent) {
    for (const auto& [key, message] : left) {
      findings.add(*message.plan, message.op,
                   "left on the wire, rank " + std::to_string(key.first) + " does not receive it");
    }
  }
  return matching;
}

// ------------------------------------------------------------------------------------------------ common to all checks

/// Plans 0..P-1 of P ranks, each with at least `buffers` buffers.
bool are_complete(std::span<const Schedule> plans, std::size_t buffers, Findings& findings) {
  for (std::size_t r = 0; r < plans.size(); ++r) {
    const Schedule& plan = plans[r];
    if (static_cast<std::size_t>(plan.rank()) != r || static_cast<std::size_t>(plan.size()) != plans.size()) {
      findings.add("plan " + std::to_string(r) + " of " + std::to_string(plans.size()) + " is that of rank " +
                   std::to_string(plan.rank()) + " of " + std::to_string(plan.size()));
      return false;
    }
    if (plan.buffers().size() < buffers) {
      findings.add("rank " + std::to_string(r) + " has no buffer " + std::to_string(buffers - 1));
      return false;
    }
  }
  return true;
}

std::optional<OpId> find(const Schedule& plan, const std::string& name) {
  for (std::size_t i = 0; i < plan.ops().size(); ++i) {
    const Op& op = plan.ops()[i];
    const bool control = std::holds_alternative<Trigger>(op.action) || std::holds_alternative<Signal>(op.action);
    if (control && op.name == name) return OpId(i);
  }
  return std::nullopt;
}

Slice whole(const Schedule& plan, BufferId buffer) { return {buffer, 0, plan.buffers()[index(buffer)].count}; }

}  // namespace

std::vector<std::string> check_allreduce(std::span<const Schedule> plans, const CheckOptions& options) {
  Findings findings;
  if (!are_complete(plans, std::max(index(options.in), index(options.out)) + 1, findings))
    return std::move(findings).texts();
  for (const Schedule& plan : plans) {
    check_races(plan, {}, findings);
    if (options.in == options.out) continue;
    for (std::size_t i = 0; i < plan.ops().size(); ++i) {
      for (const Access& access : accesses(plan.ops()[i].action)) {
        if (access.writes && access.slice.buffer == options.in) findings.add(plan, OpId(i), "writes the input");
      }
    }
  }
  const Matching matching = match_messages(plans, findings);

  SymbolicRun run(plans, matching, options.seed, options.refire, findings);
  for (const Schedule& plan : plans) run.assign(plan.rank(), options.in, plan.rank());
  run.run();
  run.check_complete();
  const std::vector<std::uint16_t> everybody(plans.size(), 1);
  for (const Schedule& plan : plans) run.check_content(plan.rank(), options.out, everybody, "at the end");
  return std::move(findings).texts();
}

std::vector<std::string> check_partial_allreduce(std::span<const Schedule> plans, std::span<const Rank> starters,
                                                 std::span<const Rank> contributors, const CheckOptions& options) {
  constexpr BufferId kData{0};
  struct Controls {
    OpId start, release, activated, result;
  };
  Findings findings;
  if (!are_complete(plans, 1, findings)) return std::move(findings).texts();
  std::vector<Controls> controls;
  for (const Schedule& plan : plans) {
    const auto start = find(plan, "start");
    const auto release = find(plan, "release");
    const auto activated = find(plan, "activated");
    const auto result = find(plan, "result");
    if (!start || !release || !activated || !result) {
      findings.add("rank " + std::to_string(plan.rank()) +
                   ": expected triggers \"start\" and \"release\" and signals \"activated\" and \"result\"");
      return std::move(findings).texts();
    }
    controls.push_back({*start, *release, *activated, *result});
    const OpAccess owned[] = {{*release, {whole(plan, kData), true}}, {*result, {whole(plan, kData), false}}};
    check_races(plan, owned, findings);
  }
  const Matching matching = match_messages(plans, findings);

  std::vector<std::uint16_t> expected(plans.size(), 0);
  for (const Rank r : contributors) expected.at(static_cast<std::size_t>(r)) = 1;
  SymbolicRun run(plans, matching, options.seed, options.refire, findings);
  bool started = false;
  run.on_control([&](Rank rank, OpId op) {
    const Controls& c = controls[static_cast<std::size_t>(rank)];
    if (op == c.release) {
      run.assign(rank, kData, expected[static_cast<std::size_t>(rank)] > 0 ? rank : kNoRank);
    } else if (op == c.activated) {
      if (!started) findings.add(plans[static_cast<std::size_t>(rank)], op, "fires though nobody has started");
      if (!run.fired(rank, c.start)) run.fire(rank, c.start);  // consumed: another rank has started the round
      run.fire(rank, c.release);
    } else if (op == c.result) {
      run.check_content(rank, kData, expected, "at \"result\"");
    }
  });
  run.run();  // ops that wait for no rank
  if (starters.empty()) return std::move(findings).texts();
  started = true;
  for (const Rank r : starters) {
    const OpId start = controls.at(static_cast<std::size_t>(r)).start;
    if (!run.fired(r, start)) run.fire(r, start);
  }
  run.run();
  run.check_complete();
  for (const Schedule& plan : plans) run.check_content(plan.rank(), kData, expected, "at the end");
  return std::move(findings).texts();
}

std::vector<std::string> check_activation(std::span<const Schedule> plans, std::span<const Rank> starters,
                                          const CheckOptions& options) {
  std::vector<Rank> all;
  for (const Schedule& plan : plans) all.push_back(plan.rank());
  return check_partial_allreduce(plans, starters, all, options);
}

}  // namespace pyc
