#include "services/hop/update_queue.h"

#include <algorithm>

namespace pyc {
namespace {

constexpr std::size_t kLine = 64;

constexpr std::size_t in_lines(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

std::size_t UpdateQueue::slot_bytes(std::size_t senders, Iteration sub_queues) {
  return in_lines(senders * static_cast<std::size_t>(sub_queues) * sizeof(UpdateSlot));
}

std::size_t UpdateQueue::stride_of(std::size_t update_bytes) { return in_lines(update_bytes); }

std::size_t UpdateQueue::bytes(std::size_t senders, Iteration sub_queues, std::size_t update_bytes) {
  return slot_bytes(senders, sub_queues) + senders * static_cast<std::size_t>(sub_queues) * stride_of(update_bytes);
}

UpdateQueue::UpdateQueue(std::byte* memory, std::size_t senders, Iteration sub_queues, std::size_t update_bytes)
    : slots_(static_cast<std::size_t>(sub_queues)),
      stride_(stride_of(update_bytes)),
      words_(reinterpret_cast<UpdateSlot*>(memory)),
      values_(memory + slot_bytes(senders, sub_queues)) {}

// ------------------------------------------------------------------------------------------------ a sender

std::size_t UpdateQueue::begin_enqueue(std::size_t sender, Iteration iter) {
  Iteration place = iter;
  const auto is_empty = [&] {
    UpdateSlot& slot = slot_at(sender, slot_of(place));
    return slot.empty(slot.tag());
  };
  while (!is_empty()) ++place;  // ends: `has_room` was true, or the receiver claims one update of a sender at a time
  return slot_of(place);
}

bool UpdateQueue::has_room(std::size_t sender, Iteration iter, Iteration oldest) const {
  const UpdateSlot::Tag found = slot_at(sender, slot_of(iter)).tag();
  return UpdateSlot::is_empty(found) || (UpdateSlot::is_full(found) && UpdateSlot::iter_of(found) < oldest);
}

// ------------------------------------------------------------------------------------------------ the receiver

std::optional<Iteration> UpdateQueue::newest(std::size_t sender) const {
  std::optional<Iteration> newest;
  for (std::size_t slot = 0; slot < slots_; ++slot) {
    const UpdateSlot::Tag found = slot_at(sender, slot).tag();
    if (UpdateSlot::is_full(found)) newest = std::max(newest.value_or(0), UpdateSlot::iter_of(found));
  }
  return newest;
}

std::optional<UpdateQueue::Claim> UpdateQueue::claim(std::size_t sender, Iteration iter) {
  return claim_slot(sender, slot_of(iter), iter);
}

std::optional<UpdateQueue::Claim> UpdateQueue::claim_newest(std::size_t sender) {
  while (const std::optional<Iteration> iter = newest(sender)) {
    for (std::size_t slot = 0; slot < slots_; ++slot) {
      if (const auto claimed = claim_slot(sender, slot, *iter)) return claimed;
    }
    // the sender has just discarded it for a newer one
  }
  return std::nullopt;
}

std::optional<UpdateQueue::Claim> UpdateQueue::claim_slot(std::size_t sender, std::size_t slot, Iteration iter) {
  if (!slot_at(sender, slot).claim(iter)) return std::nullopt;
  return Claim{sender, slot, iter};
}

std::size_t UpdateQueue::discard_before(std::size_t sender, Iteration iter) {
  std::size_t discarded = 0;
  for (std::size_t slot = 0; slot < slots_; ++slot) {
    if (slot_at(sender, slot).discard_before(iter)) ++discarded;
  }
  return discarded;
}

std::vector<Iteration> UpdateQueue::iterations(std::size_t sender) const {
  std::vector<Iteration> all;
  for (std::size_t slot = 0; slot < slots_; ++slot) {
    const UpdateSlot::Tag found = slot_at(sender, slot).tag();
    if (UpdateSlot::is_full(found)) all.push_back(UpdateSlot::iter_of(found));
  }
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace pyc
