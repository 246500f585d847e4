#include "testing/symbolic_run.h"

#include <algorithm>

#include "core/error.h"

namespace pyc {
namespace {

bool all_zero(std::span<const std::uint16_t> times) {
  return std::ranges::all_of(times, [](std::uint16_t n) { return n == 0; });
}

/// For example "nothing of rank 1, 2 times the contribution of rank 4".
std::string describe_difference(std::span<const std::uint16_t> got, std::span<const std::uint16_t> expected) {
  constexpr int kNamed = 4;
  std::string text;
  int wrong = 0;
  for (std::size_t r = 0; r < got.size(); ++r) {
    if (got[r] == expected[r] || ++wrong > kNamed) continue;
    text += (text.empty() ? "" : ", ");
    text += got[r] == 0 ? "nothing" : std::to_string(got[r]) + " times the contribution";
    text += " of rank " + std::to_string(r);
  }
  if (wrong > kNamed) text += ", and " + std::to_string(wrong - kNamed) + " more";
  return text;
}

/// Where a block begins. Blocks begin where a slice of some op begins or ends.
std::size_t first_element(const Schedule& plan, BufferId buffer, std::uint32_t block) {
  for (const Op& op : plan.ops()) {
    for (const Access& access : accesses(op.action)) {
      if (access.slice.buffer != buffer) continue;
      for (const std::size_t cut : {access.slice.first, access.slice.end()}) {
        const BlockRange before = plan.blocks_of({buffer, 0, cut});
        if (before.first + before.count == block) return cut;
      }
    }
  }
  return 0;
}

}  // namespace

bool SymbolicRun::Content::empty() const { return all_zero(times); }

SymbolicRun::SymbolicRun(std::span<const Schedule> plans, const Matching& matching, std::uint64_t seed, bool refire,
                         Findings& findings)
    : plans_(plans), matching_(matching), random_(seed), refire_(refire), findings_(findings), ranks_(plans.size()) {
  for (const Schedule& plan : plans_) {
    PerRank& rank = ranks_[at(plan.rank())];
    const std::size_t ops = plan.ops().size();
    rank.state.assign(ops, State::kWaiting);
    rank.seen.assign(ops, 0);
    rank.arrived.resize(ops);
    rank.times.assign(plan.blocks() * plans_.size(), 0);
    rank.shift.assign(plan.blocks(), 0);
    for (std::size_t i = 0; i < ops; ++i) {
      const Op& op = plan.ops()[i];
      if (op.need == 0 && !std::holds_alternative<Trigger>(op.action)) fire(plan.rank(), OpId(i));
    }
  }
}

void SymbolicRun::assign(Rank rank, BufferId buffer, Rank contributor) {
  Content content{std::vector<std::uint16_t>(plans_.size(), 0), 0};
  if (contributor != kNoRank) content.times[at(contributor)] = 1;
  write(rank, {buffer, 0, plans_[at(rank)].buffers()[index(buffer)].count}, content);
}

void SymbolicRun::fire(Rank rank, OpId op) {
  PerRank& here = ranks_[at(rank)];
  if (here.state[index(op)] != State::kWaiting) return findings_.add(plans_[at(rank)], op, "fires twice");
  here.state[index(op)] = State::kFired;
  const bool receives = std::holds_alternative<Recv>(plans_[at(rank)].op(op).action);
  if (!receives || here.arrived[index(op)]) ready_.push_back({rank, op});
}

void SymbolicRun::run() {
  while (!ready_.empty()) {
    const std::size_t chosen = std::uniform_int_distribution<std::size_t>(0, ready_.size() - 1)(random_);
    const Ready next = ready_[chosen];
    ready_[chosen] = ready_.back();
    ready_.pop_back();
    execute(next.rank, next.op);
  }
}

void SymbolicRun::execute(Rank rank, OpId id) {
  const Schedule& plan = plans_[at(rank)];
  const Action& action = plan.op(id).action;
  if (const auto* send = std::get_if<Send>(&action)) {
    Content content = read(rank, id, send->from);
    if (const auto receive = matching_[at(rank)][index(id)]) {
      PerRank& there = ranks_[at(send->to)];
      there.arrived[index(*receive)] = std::move(content);
      if (there.state[index(*receive)] == State::kFired) ready_.push_back({send->to, *receive});
    }
  } else if (const auto* recv = std::get_if<Recv>(&action)) {
    const auto& arrived = ranks_[at(rank)].arrived[index(id)];
    if (!arrived) throw InternalError("a receive was executed before its message had arrived");
    write(rank, recv->into, *arrived);
  } else if (const auto* reduce = std::get_if<Reduce>(&action)) {
    Content sum = read(rank, id, reduce->from);
    const Content into = read(rank, id, reduce->into);
    if (!sum.empty() && !into.empty() && sum.first != into.first) {
      findings_.add(plan, id,
                    "reduces elements from " + std::to_string(sum.first) + " on with those from " +
                        std::to_string(into.first) + " on");
    }
    if (sum.empty()) sum.first = into.first;
    for (std::size_t r = 0; r < plans_.size(); ++r) {
      if (sum.times[r] > 0 && into.times[r] > 0) {
        findings_.add(plan, id, "reduces the contribution of rank " + std::to_string(r) + " twice");
      }
      sum.times[r] = static_cast<std::uint16_t>(std::min(sum.times[r] + into.times[r], 0xffff));
    }
    write(rank, reduce->into, sum);
  } else if (const auto* copy = std::get_if<Copy>(&action)) {
    write(rank, copy->into, read(rank, id, copy->from));
  } else if (!std::holds_alternative<Join>(action) && on_control_) {
    on_control_(rank, id);
  }
  complete(rank, id);
}

void SymbolicRun::complete(Rank rank, OpId id) {
  const Schedule& plan = plans_[at(rank)];
  PerRank& here = ranks_[at(rank)];
  here.state[index(id)] = State::kCompleted;
  for (const OpId next : plan.op(id).next) {
    const std::uint32_t seen = ++here.seen[index(next)];
    const std::uint32_t need = plan.op(next).need;
    if (seen == need || (refire_ && seen > need)) fire(rank, next);
  }
}

/// The content of a slice. All its blocks must have the same contributions, and consecutive elements of them.
SymbolicRun::Content SymbolicRun::read(Rank rank, OpId op, const Slice& slice) {
  const Schedule& plan = plans_[at(rank)];
  const BlockRange blocks = plan.blocks_of(slice);
  const auto& shift = ranks_[at(rank)].shift;
  const auto first = times(rank, blocks.first);
  Content content{{first.begin(), first.end()}, slice.first + shift[blocks.first]};
  const bool empty = content.empty();
  const auto from = [&](std::uint32_t block) {
    return " from element " + std::to_string(first_element(plan, slice.buffer, block)) + " on";
  };
  for (std::uint32_t b = blocks.first + 1; b < blocks.first + blocks.count; ++b) {
    if (!std::ranges::equal(content.times, times(rank, b))) {
      findings_.add(plan, op,
                    "the contributors" + from(b) + " differ from those before, and one header speaks for all");
      break;
    }
    if (!empty && shift[b] != shift[blocks.first]) {
      findings_.add(plan, op, "the elements" + from(b) + " do not continue those before");
      break;
    }
  }
  return content;
}

void SymbolicRun::write(Rank rank, const Slice& slice, const Content& content) {
  const BlockRange blocks = plans_[at(rank)].blocks_of(slice);
  PerRank& here = ranks_[at(rank)];
  for (std::uint32_t b = blocks.first; b < blocks.first + blocks.count; ++b) {
    std::ranges::copy(content.times, here.times.begin() + static_cast<std::ptrdiff_t>(b * plans_.size()));
    here.shift[b] = content.first - slice.first;
  }
}

void SymbolicRun::check_complete() const {
  for (const Schedule& plan : plans_) {
    const PerRank& here = ranks_[at(plan.rank())];
    std::optional<OpId> first_waiting;
    std::size_t others = 0;
    for (std::size_t i = 0; i < plan.ops().size(); ++i) {
      const OpId op{static_cast<std::uint32_t>(i)};
      if (here.state[i] == State::kFired) findings_.add(plan, op, "waits for ever for its message");
      if (here.state[i] != State::kWaiting) continue;
      if (here.arrived[i]) findings_.add(plan, op, "never fires, its message is left on the wire");
      if (first_waiting) {
        ++others;
      } else {
        first_waiting = op;
      }
    }
    if (!first_waiting) continue;
    findings_.add(plan, *first_waiting,
                  "never fires, " + std::to_string(here.seen[index(*first_waiting)]) + " of the " +
                      std::to_string(plan.op(*first_waiting).need) + " predecessors that it needs completed" +
                      (others > 0 ? "; nor do " + std::to_string(others) + " other ops of this rank" : ""));
  }
}

void SymbolicRun::check_content(Rank rank, BufferId buffer, std::span<const std::uint16_t> expected,
                                const std::string& when) const {
  const Schedule& plan = plans_[at(rank)];
  const BlockRange blocks = plan.blocks_of({buffer, 0, plan.buffers()[index(buffer)].count});
  for (std::uint32_t b = blocks.first; b < blocks.first + blocks.count; ++b) {
    const auto got = times(rank, b);
    const std::size_t shift = ranks_[at(rank)].shift[b];
    if (std::ranges::equal(got, expected) && (shift == 0 || all_zero(got))) continue;
    const std::size_t element = first_element(plan, buffer, b);
    const std::string wrong = std::ranges::equal(got, expected)
                                  ? "what belongs from " + std::to_string(element + shift) + " on"
                                  : describe_difference(got, expected);
    std::string text = "rank " + std::to_string(rank) + ", ";
    text += when + ": " + plan.buffers()[index(buffer)].name;
    text += " holds from element " + std::to_string(element) + " on " + wrong;
    return findings_.add(text);
  }
}

}  // namespace pyc
