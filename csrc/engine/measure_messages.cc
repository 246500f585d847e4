#include "engine/measure_messages.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/presence.h"
#include "memory/memory.h"
#include "schedule/builder.h"

namespace pyc {
namespace {

constexpr int kWarmup = 2;  // the first messages open connections
constexpr int kExchanges = 7;
constexpr int kRepeats = 3;  // of the burst, and of the long exchange after the first one, which maps the memory
constexpr std::size_t kBurst = 16;
constexpr std::size_t kLong = 16384;  // elements
constexpr std::size_t kElement = sizeof(std::int64_t);
constexpr Rank kAsks = 0;
constexpr Rank kAnswers = 1;

/// The plan of one of the two ranks.
struct Measurement {
  Schedule schedule;
  std::vector<Slice> data;
  OpId start;
  std::vector<OpId> done;  ///< signals: the end of each exchange, of each burst and of each long exchange
};

Measurement plan_of(Rank rank) {
  ScheduleBuilder s(rank, 2);
  const Slice shortest = s.buffer(1, "short");
  const Slice burst = s.buffer(kBurst, "burst");
  const Slice longest = s.buffer(kLong, "long");
  const OpId start = s.trigger("start");
  s.gate(start);
  const Rank peer = 1 - rank;
  std::vector<OpId> done;
  const auto over = [&](OpId received) { done.push_back(s.signal("over", std::span(&received, 1))); };
  const auto exchange = [&](const Slice& data) {
    if (rank == kAnswers) {
      s.recv(data, peer);
      s.send(data, peer);
      return;
    }
    s.send(data, peer);
    over(s.recv(data, peer));
  };
  for (int i = 0; i < kWarmup + kExchanges; ++i) exchange(shortest);
  if (rank == kAsks) {
    for (std::size_t i = 0; i < kBurst; ++i) s.copy(shortest, burst.part(i, 1));  // after the last exchange
  }
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    for (std::size_t i = 0; i < kBurst; ++i) {
      if (rank == kAsks) {
        s.send(burst.part(i, 1), peer);
      } else {
        s.recv(burst.part(i, 1), peer);
      }
    }
    if (rank == kAsks) {
      over(s.recv(burst, peer));
    } else {
      s.send(burst, peer);
    }
  }
  if (rank == kAsks) s.copy(burst.part(0, 1), longest.part(0, 1));  // after the last burst
  for (int i = 0; i < 1 + kRepeats; ++i) exchange(longest);
  s.ungate();
  return {std::move(s).build(), {shortest, burst, longest}, start, done};
}

MessageCosts costs_from(const std::vector<Seconds>& at) {
  std::vector<Seconds> exchanges;
  for (std::size_t i = kWarmup; i < kWarmup + kExchanges; ++i) exchanges.push_back(at[i] - at[i - 1]);
  std::nth_element(exchanges.begin(), exchanges.begin() + kExchanges / 2, exchanges.end());
  const Seconds round_trip = exchanges[kExchanges / 2];
  const Seconds one_way = round_trip / 2;
  /// The minimum, because longer times were disturbed.
  const auto shortest = [&](std::size_t before) {
    Seconds least = at[before + 1] - at[before];
    for (std::size_t i = before + 1; i < before + kRepeats; ++i) least = std::min(least, at[i + 1] - at[i]);
    return least;
  };
  constexpr std::size_t kLastExchange = kWarmup + kExchanges - 1;
  const Seconds burst = shortest(kLastExchange);
  const Seconds long_one_way = shortest(kLastExchange + kRepeats + 1) / 2;
  // One way takes o + L + o. In a burst, messages follow each other after o. kLeast covers coarse clocks.
  constexpr Seconds kLeast = 1e-9;
  const Seconds overhead = std::clamp((burst - round_trip) / (kBurst - 1), kLeast, std::max(kLeast, 0.45 * one_way));
  return {.latency = std::max(one_way - 2 * overhead, kLeast),
          .overhead = overhead,
          .gap_per_byte = std::max(long_one_way - one_way, 0.0) / (kLong * kElement),
          .reduce_per_byte = 0,
          .header_bytes = 0};
}

/// Called on both ranks. If it throws, messages in flight keep their memory.
std::vector<Seconds> measure(Engine& engine, std::uint32_t id, Rank other, Seconds timeout,
                             const Engine::Interrupt& interrupt) {
  struct Both {
    Measurement plan;
    std::vector<Rank> peers;
    std::vector<Seconds> at;
    std::unique_ptr<Run> run;
  };
  auto both = std::make_unique<Both>(Both{plan_of(engine.rank() == 0 ? kAsks : kAnswers), {0, other}, {}, {}});
  engine.exclusively([&] {
    const RunContext context{.schedule = both->plan.schedule,
                             .peers = both->peers,
                             .members = 2,
                             .memory = host_memory(),
                             .transport = engine.transport(),
                             .open_transfers = engine.open_transfers(),
                             .elements = elements_of(DataType::kInt64, ReduceOp::kSum),
                             .op = ReduceOp::kSum,
                             .element_bytes = kElement,
                             .collective = id,
                             .track_members = false,
                             .trace = nullptr};
    both->run =
        std::make_unique<Run>(context, engine.reserve_run(), std::vector<BufferId>(),
                              [at = &both->at, &engine](Run&, OpId) { at->push_back(engine.transport().now()); });
    engine.set_run(*both->run);
    both->run->arm(0);
    Presence own;
    own.contributors = 1;
    for (const Slice& slice : both->plan.data) {
      both->run->presence().assign(both->plan.schedule.blocks_of(slice), own, {});
    }
    both->run->fire(both->plan.start);
    both->run->pump();
  });
  Both* const in_flight = both.release();
  const auto retired = [&] { return engine.exclusively([&] { return in_flight->run->retired(); }); };
  if (!engine.wait(retired, timeout, interrupt)) {
    throw StallError("Communicator: rank " + std::to_string(engine.rank() == 0 ? other : 0) +
                     " did not answer within " + in_seconds(timeout) + " while messages were timed");
  }
  both.reset(in_flight);
  return both->at;
}

}  // namespace

MessageCosts measure_messages(Engine& engine, Rank other, Seconds timeout, const Engine::Interrupt& interrupt) {
  const std::uint32_t id = engine.exclusively([&] { return engine.claim_id(); });
  MessageCosts costs;
  if (engine.rank() == 0 || engine.rank() == other) {
    try {
      const std::vector<Seconds> at = measure(engine, id, other, timeout, interrupt);
      if (engine.rank() == 0) costs = costs_from(at);
    } catch (...) {  // Ctrl-C, too long, or a failed engine: the others wait for the costs
      engine.give_up();
      throw;
    }
  }
  std::vector<Rank> ranks(static_cast<std::size_t>(engine.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::string text(sizeof costs, '\0');
  std::memcpy(text.data(), &costs, sizeof costs);
  text = engine.hand_down(text, ranks, "Communicator", timeout, interrupt);
  std::memcpy(&costs, text.data(), sizeof costs);
  return costs;
}

}  // namespace pyc
