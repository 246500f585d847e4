#include "services/parameter_server/transfers.h"

#include "algorithms/neighbor_exchange.h"
#include "schedule/builder.h"
#include "services/parameter_server/known.h"

namespace pyc::server {

/// Gradients travel in the accumulator type, to be added; weights in the element type.
std::size_t Transfers::bytes_of(Rank giver, Rank taker, Kind kind) const {
  if (kind == Kind::kGradient) return layout_.count(known(layout_.shard_of(taker))) * layout_.wide_bytes();
  return layout_.count(known(layout_.shard_of(giver))) * layout_.element_bytes();
}

Transfers::Way& Transfers::way(Ways& ways, Rank peer, Kind kind, bool sends) {
  Way& made = ways[{peer, kind}];
  if (made.run) return made;
  const Rank rank = engine_.rank();
  made.peers = sends ? std::vector{rank, peer} : std::vector{peer, rank};
  ScheduleBuilder s(sends ? kGiver : kTaker, 2);
  const Slice values = s.buffer(bytes_of(made.peers[kGiver], made.peers[kTaker], kind), "values");
  const OpId release = s.trigger("release");
  s.gate(release);
  neighbor_exchange(s, values);
  s.ungate();
  made.plan = std::make_unique<Plan>(Plan{std::move(s).build(), values, release});
  const RunContext context{.schedule = made.plan->schedule,
                           .peers = made.peers,
                           .members = 1,
                           .memory = memory_,
                           .transport = engine_.transport(),
                           .open_transfers = engine_.open_transfers(),
                           .elements = {DataType::kUint8, DataType::kUint8},  // bytes, nothing is reduced
                           .op = ReduceOp::kSum,
                           .element_bytes = 1,
                           .collective = collective_,
                           .track_members = false,
                           .trace = engine_.trace()};
  made.run = std::make_unique<Run>(context, engine_.reserve_run(), std::vector{values.buffer}, [](Run&, OpId) {});
  engine_.set_run(*made.run);
  return made;
}

void Transfers::start(Way& way, bool present) {
  Run& run = *way.run;
  way.is_moving = true;
  run.arm(way.number);
  run.bind(way.plan->values.buffer, way.data);
  run.presence().assign(way.plan->schedule.blocks_of(way.plan->values), {.contributors = present ? 1U : 0U}, {});
  run.fire(way.plan->release);
  run.pump();
}

void Transfers::offer(Rank to, Kind kind, std::uint64_t number, std::byte* data) {
  Way& to_it = way(sending_, to, kind, true);
  to_it.number = number;
  to_it.data = data;
  ++open_;
  messages::Messages(engine_, collective_).send(to, messages::Offer{static_cast<std::uint64_t>(kind), number});
}

void Transfers::accepted(Rank by, Kind kind) { start(sending_.at({by, kind}), true); }

void Transfers::accept(Rank from, Kind kind, std::uint64_t number, std::byte* into) {
  Way& from_it = way(receiving_, from, kind, false);
  from_it.number = number;
  from_it.data = into;
  ++open_;
  start(from_it, false);
  messages::Messages(engine_, collective_).send(from, messages::Accept{static_cast<std::uint64_t>(kind)});
}

bool Transfers::finish(Ways& ways, const Done& done) {
  bool moved = false;
  for (auto& [key, way] : ways) {
    if (!way.is_moving || !way.run->retired()) continue;
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
