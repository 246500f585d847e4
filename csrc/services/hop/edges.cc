#include "services/hop/edges.h"

#include <algorithm>
#include <utility>

namespace pyc {

HopEdges::HopEdges(Engine& engine, Memory& memory, const HopOptions& options, UpdateQueue& updates,
                   const std::vector<Rank>& receivers, const std::vector<Rank>& senders)
    : engine_(engine),
      memory_(memory),
      options_(options),
      updates_(updates),
      copied_(options.sub_queues(), 0),
      held_(options.sub_queues()) {
  const std::size_t slots = options.sub_queues();
  for (const Rank rank : receivers) {
    Giving& made = giving_[rank];
    made.is_open = std::vector<std::atomic<bool>>(slots);
    made.is_giving.resize(slots);
  }
  for (const Rank rank : senders) {
    Taking& made = taking_[rank];
    made.is_taking.resize(slots);
    made.sender = options.position(engine.rank(), rank);
  }
  while (!receivers.empty() && copies_.size() < slots) copies_.push_back(memory.allocate(options.update_bytes()));
}

void HopEdges::open(std::uint32_t collective) {
  collective_ = collective;
  for (auto& [rank, edge] : giving_) edge.transfers = transfers(rank, true);
  for (auto& [rank, edge] : taking_) edge.transfers = transfers(rank, false);
}

std::vector<std::unique_ptr<Transfer>> HopEdges::transfers(Rank peer, bool sends) {
  std::vector<std::unique_ptr<Transfer>> of_slots(options_.sub_queues());
  for (auto& each : of_slots) {
    each = std::make_unique<Transfer>(engine_, collective_, peer, sends, options_.update_bytes());
  }
  return of_slots;
}

// ------------------------------------------------------------------------------------------------ sending

void HopEdges::hold(Iteration iter, const std::byte* values) {
  const std::size_t slot = slot_of(iter);
  if (copied_[slot] == iter + 1 && !can_hold(iter)) return;  // offered to another receiver
  memory_.copy(copies_[slot].get(), values, options_.bytes());
  copied_[slot] = iter + 1;
}

void HopEdges::offer(Rank to, Iteration iter) {
  held_[slot_of(iter)].fetch_add(1);
  giving_.at(to).is_open[slot_of(iter)] = true;
  ++open_;
  mailbox().send(to, hop::Offer{iter});
}

void HopEdges::release(Giving& edge, Iteration iter) {
  edge.is_open[slot_of(iter)] = false;
  held_[slot_of(iter)].fetch_sub(1, std::memory_order_release);
  --open_;
}

bool HopEdges::give(Giving& edge) {
  bool moved = false;
  for (std::size_t slot = 0; slot < edge.transfers.size(); ++slot) {
    if (!edge.is_giving[slot] || !edge.transfers[slot]->ended()) continue;
    edge.is_giving[slot] = false;
    release(edge, edge.transfers[slot]->number());
    moved = true;
  }
  while (!edge.accepted.empty()) {
    const Iteration iter = edge.accepted.front();
    edge.accepted.pop_front();
    edge.is_giving[slot_of(iter)] = true;
    edge.transfers[slot_of(iter)]->start(iter, copies_[slot_of(iter)].get());
    moved = true;
  }
  return moved;
}

// ------------------------------------------------------------------------------------------------ receiving

void HopEdges::offered(Rank by, Iteration iter) {
  taking_.at(by).offered.push_back(iter);
  ++open_;
}

bool HopEdges::take(Rank from, Taking& edge, const Answers& answer) {
  bool moved = false;
  for (std::size_t slot = 0; slot < edge.transfers.size(); ++slot) {
    if (!edge.is_taking[slot] || !edge.transfers[slot]->ended()) continue;
    edge.is_taking[slot] = false;
    updates_.end_enqueue(edge.sender, slot, edge.transfers[slot]->number());
    --open_;
    moved = true;
  }
  while (!edge.offered.empty()) {
    const Iteration iter = edge.offered.front();
    const Answer use = answer(from, iter);
    if (use == Answer::kDecline) {
      mailbox().send(from, hop::Decline{iter});
      --open_;
    } else {
      if (use == Answer::kLater || is_slot_busy(edge, iter)) break;
      const std::size_t slot = updates_.begin_enqueue(edge.sender, iter);
      edge.is_taking[slot] = true;
      edge.transfers[slot]->start(iter, updates_.values(edge.sender, slot));
      mailbox().send(from, hop::Accept{iter});
    }
    edge.offered.pop_front();
    moved = true;
  }
  return moved;
}

/// A receive is pending, of an update that this rank did not wait for. Under bounded staleness it may use any slot.
bool HopEdges::is_slot_busy(const Taking& edge, Iteration iter) const {
  if (!options_.staleness) return edge.is_taking[slot_of(iter)];
  return std::find(edge.is_taking.begin(), edge.is_taking.end(), true) != edge.is_taking.end();
}

bool HopEdges::advance(const Answers& answer) {
  bool moved = false;
  for (auto& [rank, edge] : giving_) moved = give(edge) || moved;
  for (auto& [rank, edge] : taking_) moved = take(rank, edge, answer) || moved;
  return moved;
}

}  // namespace pyc
