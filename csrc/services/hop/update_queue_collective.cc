#include "services/hop/update_queue_collective.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace pyc {

std::shared_ptr<UpdateQueueCollective> UpdateQueueCollective::create(std::shared_ptr<Engine> engine, Memory& memory,
                                                                     HopOptions options, Rank owner, const Nodes& nodes,
                                                                     Seconds timeout,
                                                                     const Engine::Interrupt& interrupt) {
  std::shared_ptr<UpdateQueueCollective> made(
      new UpdateQueueCollective(*engine, memory, std::move(options), owner, nodes));
  const OnNode on_node = made->on_node();
  return created(std::move(engine), std::move(made), on_node, timeout, interrupt);
}

UpdateQueueCollective::UpdateQueueCollective(Engine& engine, Memory& memory, HopOptions options, Rank owner,
                                             const Nodes& nodes)
    : HopMember(engine, memory, std::move(options), nodes, "update queue"), owner_(owner) {}

// ------------------------------------------------------------------------------------------------ a sender

void UpdateQueueCollective::enqueue(const std::byte* values, Iteration iter, Seconds timeout,
                                    const Engine::Interrupt& interrupt) {
  check_open();
  const auto is_needless = [&] { return has_left(owner_) || iter < oldest(); };
  const auto can_send = [&] { return is_needless() || has_room(iter); };
  const auto awaited = [&] { return std::vector{hop::room_at(owner_, iter)}; };
  wait_for({.what = "enqueue", .done = can_send, .awaited = awaited}, timeout, interrupt);
  if (!is_needless()) send_update(owner_, iter, values);
  sent_ = iter + 1;
}

bool UpdateQueueCollective::has_room(Iteration iter) const {
  if (!is_local(owner_)) return edges_->can_hold(iter);
  return updates().has_room(options_.position(owner_, rank()), iter, oldest());
}

// ------------------------------------------------------------------------------------------------ the owner

std::vector<std::size_t> UpdateQueueCollective::senders_of(Tags tags) const {
  if (tags.sender) return {options_.position(owner_, *tags.sender)};
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < options_.in_of(owner_).size(); ++i) all.push_back(i);
  return all;
}

/// Iterations of a sender's updates, ascending, without updates that arrived after they became stale.
std::vector<Iteration> UpdateQueueCollective::iterations_of(std::size_t sender, Tags tags) const {
  std::vector<Iteration> all = updates().iterations(sender);
  std::erase_if(all, [&](Iteration iter) { return iter < oldest() || (tags.iter && iter != *tags.iter); });
  return all;
}

std::size_t UpdateQueueCollective::size(Tags tags) const {
  std::size_t count = 0;
  for (const std::size_t sender : senders_of(tags)) count += iterations_of(sender, tags).size();
  return count;
}

/// Whether a sender has not left, or an update is in transit.
bool UpdateQueueCollective::can_come(Tags tags) const {
  const std::vector<std::size_t> senders = senders_of(tags);
  const bool all_have_left = std::all_of(
      senders.begin(), senders.end(), [this](std::size_t sender) { return has_left(options_.in_of(owner_)[sender]); });
  return !all_have_left || !engine_->exclusively([this] { return edges_->idle(); });
}

void UpdateQueueCollective::dequeue(std::size_t m, Tags tags, const std::function<void(const Update&)>& take,
                                    Seconds timeout, const Engine::Interrupt& interrupt) {
  check_open();
  const std::vector<Rank>& ranks = options_.in_of(owner_);
  if (tags.iter && *tags.iter < oldest()) {
    throw std::invalid_argument("'" + name() + "': dequeue: iteration: expected " + std::to_string(oldest()) +
                                " or later, since updates of earlier iterations are discarded, got " +
                                std::to_string(*tags.iter));
  }
  if (tags.iter && *tags.iter > oldest()) {
    own_standing().iteration.store(*tags.iter);
    for (std::size_t sender = 0; sender < ranks.size(); ++sender) {
      updates().discard_before(sender, *tags.iter);
      notify(ranks[sender]);
    }
  }
  const auto awaited = [&] {
    std::vector<Awaited> all;
    for (const std::size_t sender : senders_of(tags)) {
      if (tags.iter && updates().has(sender, *tags.iter)) continue;
      all.push_back(tags.iter ? hop::update_of(ranks[sender], *tags.iter) : hop::any_update_of(ranks[sender]));
    }
    return all;
  };
  bool is_in_vain = false;
  const auto done = [&] {
    is_in_vain = !can_come(tags);  // before `size`: an update may arrive in between
    return size(tags) >= m || is_in_vain;
  };
  wait_for({.what = "dequeue", .done = done, .awaited = awaited}, timeout, interrupt);
  if (size(tags) < m) {
    throw ClosedError("'" + name() + "': dequeue: expected " + std::to_string(m) + " updates, got " +
                      std::to_string(size(tags)) + ", and all who could send more have left");
  }

  std::vector<UpdateQueue::Claim> claims;
  for (const std::size_t sender : senders_of(tags)) {
    for (const Iteration iter : iterations_of(sender, tags)) {
      if (const auto claim = updates().claim(sender, iter)) claims.push_back(*claim);
    }
  }
  std::sort(claims.begin(), claims.end(),
            [](const auto& a, const auto& b) { return a.iter != b.iter ? a.iter < b.iter : a.sender < b.sender; });
  for (; claims.size() > m; claims.pop_back()) updates().release(claims.back());
  try {
    for (const auto& [sender, slot, iter] : claims) take({updates().values(sender, slot), iter, ranks[sender]});
  } catch (...) {
    for (const UpdateQueue::Claim& claim : claims) updates().release(claim);
    throw;
  }
  for (const UpdateQueue::Claim& claim : claims) {
    updates().dequeue(claim);
    notify(ranks[claim.sender]);
  }
  engine_->advance();  // accepts offers that had no room
}

HopEdges::Answer UpdateQueueCollective::answer(Rank to, Iteration iter) const {
  if (closed() || iter < oldest()) return HopEdges::Answer::kDecline;
  const bool room = updates().has_room(options_.position(owner_, to), iter, oldest());
  return room ? HopEdges::Answer::kAccept : HopEdges::Answer::kLater;
}

}  // namespace pyc
