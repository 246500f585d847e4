#include "services/hop/board.h"

#include <new>
#include <utility>

#include "core/checked.h"

namespace pyc {

std::size_t HopBoard::tokens_bytes(const HopOptions& options, Rank rank) {
  return round_up(options.in_of(rank).size() * sizeof(TokenQueue::Counters), kPage);
}

/// A page for the standing, then the counters of the token queues, then the update queue.
std::size_t HopBoard::bytes_of_rank(const HopOptions& options, Rank rank) {
  const std::size_t updates =
      UpdateQueue::bytes(options.in_of(rank).size(), options.sub_queues(), options.update_bytes());
  return kPage + tokens_bytes(options, rank) + round_up(updates, kPage);
}

std::size_t HopBoard::bytes(const HopOptions& options, const Nodes& nodes, Rank rank) {
  std::size_t total = 0;
  for (const Rank r : nodes.neighbours(rank)) total += bytes_of_rank(options, r);
  return total;
}

HopBoard::HopBoard(std::shared_ptr<std::byte> memory, const HopOptions& options, const Nodes& nodes, Rank rank)
    : memory_(std::move(memory)), options_(options), nodes_(nodes), rank_(rank) {
  static_assert(sizeof(HopStanding) <= kPage);
  std::size_t start = 0;
  for (const Rank r : nodes_.neighbours(rank)) {
    starts_.push_back(start);
    start += bytes_of_rank(options, r);
  }
  for (const Rank r : nodes_.neighbours(rank)) {
    std::byte* const queue = start_of(r) + kPage + tokens_bytes(options, r);
    updates_.emplace_back(queue, options.in_of(r).size(), options.sub_queues(), options.update_bytes());
  }
  ::new (start_of(rank_)) HopStanding;
}

TokenQueue HopBoard::tokens(Rank of, Rank sender) const {
  auto* const counters = reinterpret_cast<TokenQueue::Counters*>(start_of(of) + kPage);
  return {counters[options_.position(of, sender)], options_.first_tokens()};
}

}  // namespace pyc
