#include "engine/run.h"

#include <algorithm>
#include <string>

namespace pyc {

Run::Run(const RunContext& context, std::uint32_t serial, std::vector<BufferId> external, OnSignal on_signal)
    : context_(context),
      serial_(serial),
      on_signal_(std::move(on_signal)),
      presence_(context.schedule.blocks(), context.members, context.track_members) {
  const Schedule& plan = context_.schedule;
  for (std::size_t b = 0; b < plan.buffers().size(); ++b) {
    const bool bound_later = std::find(external.begin(), external.end(), BufferId(b)) != external.end();
    if (bound_later) {
      buffers_.push_back(nullptr);
      continue;
    }
    const std::size_t bytes = plan.buffers()[b].count * context_.element_bytes;
    owned_.push_back(context_.memory.allocate(bytes));
    buffers_.push_back(owned_.back().get());
    memory_bytes_ += bytes;
  }
  blocks_.resize(2 * plan.ops().size());
  for (std::size_t i = 0; i < plan.ops().size(); ++i) {
    const AccessList touched = accesses(plan.ops()[i].action);
    for (std::size_t k = 0; k < touched.count; ++k) blocks_[2 * i + k] = plan.blocks_of(touched.list[k].slice);
  }
  seen_.resize(plan.ops().size());
  ready_.reserve(plan.ops().size());
}

void Run::arm(RoundNumber round) {
  round_ = round;
  failed_ = false;
  presence_.clear();
  std::fill(seen_.begin(), seen_.end(), 0);
  ready_.clear();
  next_ready_ = 0;
  const auto ops = context_.schedule.ops();
  remaining_ = ops.size();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].need == 0 && !std::holds_alternative<Trigger>(ops[i].action)) ready_.push_back(OpId(i));
  }
  pump();
}

void Run::fire(OpId trigger) {
  if (seen_[index(trigger)]++ == 0) ready_.push_back(trigger);  // consumable: a second firing has no effect
}

void Run::pump() {
  while (next_ready_ < ready_.size()) execute(ready_[next_ready_++]);
}

void Run::execute(OpId id) {
  const Op& op = context_.schedule.op(id);
  if (context_.trace != nullptr) context_.trace->begin(cookie(serial_, id), context_.transport.now());
  if (const auto* send = std::get_if<Send>(&op.action)) {
    const Operand from = operand(id, 0);
    const ConstBytes header = presence_.header(from.blocks.first, round_, context_.collective, failed_);
    const ConstBytes payload(from.data, from.count * context_.element_bytes);
    const bool present = presence_.at(from.blocks.first).present() && !payload.empty();
    ++context_.open_transfers;
    context_.transport.send(peer(send->to), tag(send->channel), header, payload, present, cookie(serial_, id));
    return;  // completes in on_sent
  }
  if (const auto* recv = std::get_if<Recv>(&op.action)) {
    const Operand into = operand(id, 0);
    ++context_.open_transfers;
    context_.transport.recv(peer(recv->from), tag(recv->channel), Bytes(into.data, into.count * context_.element_bytes),
                            cookie(serial_, id));
    return;  // completes in on_received
  }
  if (std::holds_alternative<Reduce>(op.action)) {
    const Operand from = operand(id, 0);
    const Operand into = operand(id, 1);
    if (presence_.at(from.blocks.first).present() && context_.element_bytes > 0) {
      if (presence_.at(into.blocks.first).present()) {
        context_.memory.reduce(context_.elements, context_.op, into.data, from.data, into.count);
      } else {
        context_.memory.copy(into.data, from.data, into.count * context_.element_bytes);
      }
    }
    presence_.merge(into.blocks, from.blocks);
  } else if (std::holds_alternative<Copy>(op.action)) {
    if (begin_copy(id)) return;  // completes in on_copied
  } else if (std::holds_alternative<Signal>(op.action)) {
    on_signal_(*this, id);
  }
  complete(id);
}

/// Returns whether the copy completes later.
bool Run::begin_copy(OpId id) {
  const Copy& copy = std::get<Copy>(context_.schedule.op(id).action);
  const BlockRange from = blocks_[2 * index(id)];
  presence_.copy(blocks_[2 * index(id) + 1], from);
  if (!presence_.at(from.first).present()) return false;
  const std::size_t bytes = copy.into.count * context_.element_bytes;
  if (!is_elsewhere(copy.from) && !is_elsewhere(copy.into)) {
    context_.memory.copy(address(copy.into), address(copy.from), bytes);
    return false;
  }
  const Slice& there = is_elsewhere(copy.from) ? copy.from : copy.into;
  if (failed_ || buffers_[index(there.buffer)] == nullptr) return false;
  context_.copier->copy(id, address(copy.into), address(copy.from), bytes);
  return true;
}

void Run::on_received(OpId id, ConstBytes header, bool has_payload) {
  --context_.open_transfers;
  const Presence wire = presence_.receive(operand(id, 0).blocks, header);
  if (wire.round != round_ || wire.collective != context_.collective ||
      has_payload != (wire.present() && context_.element_bytes > 0)) {
    throw InternalError(context_.schedule.describe(id) + ": expected round " + std::to_string(round_) +
                        " of collective " + std::to_string(context_.collective) + ", got round " +
                        std::to_string(wire.round) + " of collective " + std::to_string(wire.collective));
  }
  if (wire.failed != 0) failed_ = true;
  complete(id);
}

void Run::complete(OpId id) {
  const Op& op = context_.schedule.op(id);
  if (context_.trace != nullptr) {
    context_.trace->end(cookie(serial_, id), context_.transport.now(), op.name, context_.collective, round_);
  }
  --remaining_;
  for (const OpId next : op.next) {
    // `==` instead of `>=`: fires exactly once, even if more predecessors complete than are needed.
    if (++seen_[index(next)] == context_.schedule.op(next).need) ready_.push_back(next);
  }
}

Run::Operand Run::operand(OpId id, std::size_t which) const {
  const Slice& slice = accesses(context_.schedule.op(id).action).list[which].slice;
  return {address(slice), slice.count, blocks_[2 * index(id) + which]};
}

std::byte* Run::address(const Slice& slice) const {
  return buffers_[index(slice.buffer)] + slice.first * context_.element_bytes;
}

}  // namespace pyc
