#include "services/parameter_server/transfers.h"

#include "services/parameter_server/known.h"

namespace pyc::server {

/// Gradients travel in the accumulator type, to be added; weights in the element type.
std::size_t Transfers::bytes_of(Rank giver, Rank taker, Kind kind) const {
  if (kind == Kind::kGradient) return layout_.count(known(layout_.shard_of(taker))) * layout_.wide_bytes();
  return layout_.count(known(layout_.shard_of(giver))) * layout_.element_bytes();
}

/// For the next transfer.
Transfers::Way& Transfers::way(Ways& ways, Rank peer, Kind kind, bool sends, std::uint64_t number, std::byte* data) {
  Way& way = ways[{peer, kind}];
  if (!way.transfer) {
    const Rank rank = engine_.rank();
    const std::size_t bytes = sends ? bytes_of(rank, peer, kind) : bytes_of(peer, rank, kind);
    way.transfer = std::make_unique<Transfer>(engine_, collective_, peer, sends, bytes);
  }
  way.number = number;
  way.data = data;
  ++open_;
  return way;
}

void Transfers::start(Way& way) {
  way.is_moving = true;
  way.transfer->start(way.number, way.data);
}

void Transfers::offer(Rank to, Kind kind, std::uint64_t number, std::byte* data) {
  way(sending_, to, kind, true, number, data);
  messages::Messages(engine_, collective_).send(to, messages::Offer{static_cast<std::uint64_t>(kind), number});
}

void Transfers::accepted(Rank by, Kind kind) { start(sending_.at({by, kind})); }

void Transfers::accept(Rank from, Kind kind, std::uint64_t number, std::byte* into) {
  start(way(receiving_, from, kind, false, number, into));
  messages::Messages(engine_, collective_).send(from, messages::Accept{static_cast<std::uint64_t>(kind)});
}

bool Transfers::finish(Ways& ways, const Done& done) {
  bool moved = false;
  for (auto& [key, way] : ways) {
    if (!way.is_moving || !way.transfer->ended()) continue;
    way.is_moving = false;
    --open_;
    done(key.first, key.second, way.number);
    moved = true;
  }
  return moved;
}

bool Transfers::advance(const Done& sent, const Done& received) {
  if (idle()) return false;
  const bool any_sent = finish(sending_, sent);
  return finish(receiving_, received) || any_sent;
}

}  // namespace pyc::server
