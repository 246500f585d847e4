#include "schedule/builder.h"

#include <algorithm>

#include "core/error.h"

namespace pyc {

ScheduleBuilder::ScheduleBuilder(Rank rank, Rank size) : rank_(rank), size_(size) {
  if (size < 1 || rank < 0 || rank >= size) {
    throw ScheduleError("rank " + std::to_string(rank) + " of " + std::to_string(size) + " ranks");
  }
}

Slice ScheduleBuilder::buffer(std::size_t count, std::string name) {
  const BufferId id{static_cast<std::uint32_t>(buffers_.size())};
  if (name.empty()) name = "buffer" + std::to_string(index(id));
  buffers_.push_back({count, std::move(name)});
  past_.emplace_back();
  return {id, 0, count};
}

OpId ScheduleBuilder::send(Slice from, Rank to) {
  return add(Send{from, to, sent_to_[to]++}, "send>" + std::to_string(to));
}

OpId ScheduleBuilder::recv(Slice into, Rank from) {
  return add(Recv{into, from, received_from_[from]++}, "recv<" + std::to_string(from));
}

OpId ScheduleBuilder::reduce(Slice from, Slice into) { return add(Reduce{from, into}, "reduce"); }

void ScheduleBuilder::copy(Slice from, Slice into) {
  if (from != into) add(Copy{from, into}, "copy");
}

OpId ScheduleBuilder::trigger(std::string name) { return add_control(Trigger{}, std::move(name), {}, Need::all()); }

OpId ScheduleBuilder::join(std::string name, std::span<const OpId> predecessors, Need need) {
  return add_control(Join{}, std::move(name), predecessors, need);
}

OpId ScheduleBuilder::signal(std::string name, std::span<const OpId> predecessors) {
  return add_control(Signal{}, std::move(name), predecessors, Need::all());
}

std::vector<OpId> ScheduleBuilder::writers(Slice slice) const {
  std::vector<OpId> ops;
  for (const PastAccess& past : past_.at(index(slice.buffer))) {
    if (past.writes && past.first < slice.end() && slice.first < past.end) ops.push_back(past.op);
  }
  return ops;
}

std::vector<OpId> ScheduleBuilder::receives_after(OpId op) const {
  std::vector<OpId> ops;
  for (std::size_t i = index(op) + 1; i < ops_.size(); ++i) {
    if (std::holds_alternative<Recv>(ops_[i].action)) ops.push_back(OpId(i));
  }
  return ops;
}

void ScheduleBuilder::gate(OpId op) {
  if (index(op) >= ops_.size()) throw ScheduleError("gate: no op " + std::to_string(index(op)));
  gate_ = op;
  behind_gate_.assign(ops_.size(), false);
}

Schedule ScheduleBuilder::build() && { return Schedule(rank_, size_, std::move(buffers_), std::move(ops_)); }

OpId ScheduleBuilder::add(Action action, std::string name) {
  const OpId id{static_cast<std::uint32_t>(ops_.size())};
  const AccessList touched = accesses(action);
  ops_.push_back({action, std::move(name), 0, 0, {}});
  last_dependent_.push_back(id);  // an op does not wait for itself
  behind_gate_.push_back(false);
  for (const Access& access : touched) order_after_conflicts(id, access);
  if (gate_ && !behind_gate_[index(id)]) {
    depend(id, *gate_);
    behind_gate_[index(id)] = true;
  }
  return id;
}

OpId ScheduleBuilder::add_control(Action action, std::string name, std::span<const OpId> predecessors, Need need) {
  const OpId id{static_cast<std::uint32_t>(ops_.size())};
  ops_.push_back({action, std::move(name), 0, 0, {}});
  last_dependent_.push_back(id);
  behind_gate_.push_back(false);
  for (const OpId p : predecessors) {
    if (index(p) >= index(id)) throw ScheduleError(ops_.back().name + ": no earlier op " + std::to_string(index(p)));
    depend(id, p);
  }
  Op& op = ops_.back();
  if (op.predecessors != predecessors.size()) throw ScheduleError(op.name + ": a predecessor is named twice");
  if (need.kind != Need::Kind::kAll) {
    if (need.count < 1 || need.count > op.predecessors) {
      throw ScheduleError(op.name + ": need must be in 1.." + std::to_string(op.predecessors) + ", got " +
                          std::to_string(need.count));
    }
    op.need = need.count;
  }
  return id;
}

void ScheduleBuilder::depend(OpId op, OpId on) {
  if (last_dependent_[index(on)] == op) return;
  last_dependent_[index(on)] = op;
  ops_[index(on)].next.push_back(op);
  ++ops_[index(op)].need;
  ++ops_[index(op)].predecessors;
  if (behind_gate_[index(on)]) behind_gate_[index(op)] = true;
}

void ScheduleBuilder::order_after_conflicts(OpId op, const Access& access) {
  const Slice& slice = access.slice;
  if (index(slice.buffer) >= past_.size()) throw ScheduleError(ops_[index(op)].name + ": no such buffer");
  auto& past = past_[index(slice.buffer)];
  for (const PastAccess& p : past) {
    if ((access.writes || p.writes) && p.first < slice.end() && slice.first < p.end) depend(op, p.op);
  }
  if (access.writes) {
    // An access that conflicts with a covered one also conflicts with this write, so it is ordered after both.
    std::erase_if(past, [&](const PastAccess& p) { return slice.first <= p.first && p.end <= slice.end(); });
  }
  past.push_back({op, slice.first, slice.end(), access.writes});
}

}  // namespace pyc
