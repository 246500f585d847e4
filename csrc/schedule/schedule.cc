#include "schedule/schedule.h"

#include <algorithm>
#include <sstream>

#include "core/error.h"

namespace pyc {
namespace {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};

/// Color of an op, as in eager-SGD Fig. 6.
const char* colour(const Action& action) {
  return std::visit(Overloaded{[](const Send&) { return "lightblue"; }, [](const Recv&) { return "palegreen"; },
                               [](const Reduce&) { return "orange"; }, [](const Copy&) { return "orange"; },
                               [](const auto&) { return "white"; }},
                    action);
}

}  // namespace

Slice Slice::part(std::size_t offset, std::size_t n) const {
  if (offset > count || n > count - offset) {
    throw ScheduleError("part of a slice: elements " + std::to_string(offset) + " to " + std::to_string(offset + n) +
                        " of " + std::to_string(count));
  }
  return {buffer, first + offset, n};
}

bool overlap(const Slice& a, const Slice& b) { return a.buffer == b.buffer && a.first < b.end() && b.first < a.end(); }

AccessList accesses(const Action& action) {
  return std::visit(Overloaded{[](const Send& s) { return AccessList{{{s.from, false}, {}}, 1}; },
                               [](const Recv& r) { return AccessList{{{r.into, true}, {}}, 1}; },
                               [](const Reduce& r) { return AccessList{{{r.from, false}, {r.into, true}}, 2}; },
                               [](const Copy& c) { return AccessList{{{c.from, false}, {c.into, true}}, 2}; },
                               [](const auto&) { return AccessList{}; }},
                    action);
}

Schedule::Schedule(Rank rank, Rank size, std::vector<Buffer> buffers, std::vector<Op> ops)
    : rank_(rank), size_(size), buffers_(std::move(buffers)), ops_(std::move(ops)) {
  validate();
  cut_blocks();
  for (const Op& op : ops_) {
    if (const auto* send = std::get_if<Send>(&op.action)) channels_ = std::max(channels_, send->channel + 1);
    if (const auto* recv = std::get_if<Recv>(&op.action)) channels_ = std::max(channels_, recv->channel + 1);
  }
}

std::size_t Schedule::edges() const {
  std::size_t n = 0;
  for (const Op& op : ops_) n += op.next.size();
  return n;
}

std::vector<BufferId> Schedule::unused_after(OpId op) const {
  std::vector<bool> precedes(ops_.size());
  precedes[index(op)] = true;
  std::vector<bool> unused(buffers_.size(), true);
  for (std::size_t i = ops_.size(); i-- > 0;) {  // edges point forward
    for (const OpId next : ops_[i].next) {
      const Op& after = ops_[index(next)];
      if (precedes[index(next)] && after.need == after.predecessors) precedes[i] = true;
    }
    if (precedes[i]) continue;
    for (const Access& access : accesses(ops_[i].action)) unused[index(access.slice.buffer)] = false;
  }
  std::vector<BufferId> found;
  for (std::size_t b = 0; b < unused.size(); ++b) {
    if (unused[b]) found.push_back(BufferId(b));
  }
  return found;
}

void Schedule::validate() const {
  std::vector<std::uint32_t> predecessors(ops_.size(), 0);
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    const OpId id{static_cast<std::uint32_t>(i)};
    validate(ops_[i], id);
    for (const OpId next : ops_[i].next) {
      // Edges point forward in program order, so no plan has a cycle.
      if (index(next) <= i || index(next) >= ops_.size()) {
        throw ScheduleError(describe(id) + ": edge to op " + std::to_string(index(next)) + " closes a cycle");
      }
      ++predecessors[index(next)];
    }
  }
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    const Op& op = ops_[i];
    const OpId id{static_cast<std::uint32_t>(i)};
    if (op.predecessors != predecessors[i]) throw ScheduleError(describe(id) + ": predecessors miscounted");
    if (op.need > op.predecessors) {
      throw ScheduleError(describe(id) + ": unreachable, needs " + std::to_string(op.need) + " of " +
                          std::to_string(op.predecessors) + " predecessors");
    }
    if (op.need == 0 && op.predecessors > 0) throw ScheduleError(describe(id) + ": waits for none of its predecessors");
    if (op.predecessors == 0 &&
        (std::holds_alternative<Join>(op.action) || std::holds_alternative<Signal>(op.action))) {
      throw ScheduleError(describe(id) + ": has no predecessors");
    }
    if (op.predecessors > 0 && std::holds_alternative<Trigger>(op.action)) {
      throw ScheduleError(describe(id) + ": a trigger has no predecessors, its owner fires it");
    }
  }
}

void Schedule::validate(const Op& op, OpId id) const {
  const AccessList touched = accesses(op.action);
  for (const Access& access : touched) {
    const Slice& s = access.slice;
    if (index(s.buffer) >= buffers_.size()) throw ScheduleError(op.name + ": no such buffer");
    const std::size_t count = buffers_[index(s.buffer)].count;
    if (s.count == 0) throw ScheduleError(describe(id) + ": empty slice");
    if (s.first > count || s.count > count - s.first) {
      throw ScheduleError(describe(id) + ": past the end of a buffer of " + std::to_string(count));
    }
  }
  if (touched.count == 2) {
    const Slice& from = touched.list[0].slice;
    const Slice& into = touched.list[1].slice;
    if (from.count != into.count) {
      throw ScheduleError(describe(id) + ": lengths " + std::to_string(from.count) + " and " +
                          std::to_string(into.count) + " differ");
    }
    if (overlap(from, into)) throw ScheduleError(describe(id) + ": source and target overlap");
  }
  const auto check_peer = [&](Rank peer) {
    if (peer < 0 || peer >= size_) throw ScheduleError(describe(id) + ": peer outside 0.." + std::to_string(size_ - 1));
    if (peer == rank_) throw ScheduleError(describe(id) + ": peer is the rank itself");
  };
  if (const auto* send = std::get_if<Send>(&op.action)) check_peer(send->to);
  if (const auto* recv = std::get_if<Recv>(&op.action)) check_peer(recv->from);
}

void Schedule::cut_blocks() {
  cuts_.resize(buffers_.size());
  for (std::size_t b = 0; b < buffers_.size(); ++b) cuts_[b] = {0, buffers_[b].count};
  for (const Op& op : ops_) {
    for (const Access& access : accesses(op.action)) {
      auto& cuts = cuts_[index(access.slice.buffer)];
      cuts.push_back(access.slice.first);
      cuts.push_back(access.slice.end());
    }
  }
  first_block_.resize(buffers_.size());
  for (std::size_t b = 0; b < buffers_.size(); ++b) {
    auto& cuts = cuts_[b];
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    first_block_[b] = block_count_;
    block_count_ += static_cast<std::uint32_t>(cuts.size() - 1);  // the last cut is the buffer's end
  }
}

BlockRange Schedule::blocks_of(const Slice& slice) const {
  const auto& cuts = cuts_[index(slice.buffer)];
  const auto at = [&](std::size_t element) {
    return static_cast<std::uint32_t>(std::lower_bound(cuts.begin(), cuts.end(), element) - cuts.begin());
  };
  const std::uint32_t first = at(slice.first);
  return {first_block_[index(slice.buffer)] + first, at(slice.end()) - first};
}

std::string Schedule::describe(const Slice& slice) const {
  const std::string& name = buffers_[index(slice.buffer)].name;
  return name + "[" + std::to_string(slice.first) + ":" + std::to_string(slice.end()) + "]";
}

std::string Schedule::describe(OpId id) const {
  const Op& op = ops_[index(id)];
  std::string line = "op " + std::to_string(index(id)) + " " + op.name;
  const AccessList touched = accesses(op.action);
  for (std::size_t i = 0; i < touched.count; ++i) line += (i == 0 ? " " : " -> ") + describe(touched.list[i].slice);
  return line;
}

std::string Schedule::text() const {
  std::ostringstream os;
  os << "rank " << rank_ << " of " << size_ << ": " << ops_.size() << " ops, " << edges() << " edges\n";
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    const Op& op = ops_[i];
    os << "  " << describe(OpId{static_cast<std::uint32_t>(i)});
    if (op.need < op.predecessors) os << "  (" << op.need << " of " << op.predecessors << ")";
    const char* separator = "  => ";
    for (const OpId next : op.next) {
      os << separator << index(next);
      separator = " ";
    }
    os << "\n";
  }
  return os.str();
}

std::string Schedule::dot() const {
  std::ostringstream os;
  os << "digraph \"rank " << rank_ << " of " << size_ << "\" {\n  node [style=filled, shape=ellipse];\n";
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    const Op& op = ops_[i];
    os << "  op" << i << " [label=\"" << op.name << "\", fillcolor=" << colour(op.action)
       << (op.need < op.predecessors ? ", style=\"filled,dashed\"" : "") << "];\n";
    for (const OpId next : op.next) os << "  op" << i << " -> op" << index(next) << ";\n";
  }
  os << "}\n";
  return os.str();
}

Schedule Schedule::without_edge(OpId before, OpId after) const {
  std::vector<Op> ops = ops_;
  auto& next = ops.at(index(before)).next;
  const auto edge = std::find(next.begin(), next.end(), after);
  if (edge == next.end()) throw ScheduleError(describe(before) + ": no edge to op " + std::to_string(index(after)));
  next.erase(edge);
  Op& later = ops.at(index(after));
  later.predecessors -= 1;
  later.need = std::min(later.need, later.predecessors);
  return Schedule(rank_, size_, buffers_, std::move(ops));
}

Schedule Schedule::with_need(OpId id, std::uint32_t need) const {
  std::vector<Op> ops = ops_;
  ops.at(index(id)).need = need;
  return Schedule(rank_, size_, buffers_, std::move(ops));
}

}  // namespace pyc
