// The shared counter in virtual time: every number is given once, whatever the order in which messages arrive.
#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "cpp_test.h"
#include "services/counter/counter.h"
#include "transport/simulated.h"

namespace pyc {
namespace {

constexpr std::uint64_t kStart = 5;

struct Interval {
  std::uint64_t first, n;
};

/// Ranks that each make some calls, at random times.
class Job {
 public:
  Job(Rank size, Rank ranks_per_node, std::uint64_t seed)
      : random_(seed), network_(size, {.latency = 1, .overhead = 0.1, .jitter = 5}, seed), nodes_([&] {
          std::vector<Rank> of;
          for (Rank r = 0; r < size; ++r) of.push_back(r / ranks_per_node);
          return Nodes(std::move(of));
        }()) {
    std::shared_ptr<SharedMemory> shared;
    for (Rank r = 0; r < size; ++r) {
      auto engine = std::make_shared<Engine>(network_.endpoint(r), Engine::Options{.progress = Progress::kCaller});
      auto counter = SharedCounter::join(engine, "counter", kStart, nodes_, shared);
      ranks_.push_back({std::move(engine), std::move(counter), draw(6), 0, false, false});
    }
    for (Rank r = 0; r < size; ++r) pause(r);
  }

  /// Returns whether an event was left.
  bool step() {
    Rank woken = kNoRank;
    if (!network_.step(woken)) return false;
    if (woken != kNoRank) drive(woken);
    return true;
  }

  /// The numbers that calls have returned, and those of requests that rank 0 has served.
  std::vector<Interval> given() {
    std::vector<Interval> all = given_;
    const auto served = ranks_[0].counter->served();
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const auto request = ranks_[r].counter->request();
      if (!request) continue;
      const auto [sequence, before] = served[r];
      if (request->before) PYC_CHECK(sequence == request->sequence && before == *request->before);
      if (sequence == request->sequence) all.push_back({before, request->n});
    }
    return all;
  }

  std::uint64_t known() const {
    std::uint64_t most = 0;
    for (const Ranks& r : ranks_) {
      PYC_CHECK(r.counter->known() <= ranks_[0].counter->known());
      most = std::max(most, r.counter->known());
    }
    return most;
  }

  void check_ended() const {
    for (const Ranks& r : ranks_) {
      PYC_CHECK(r.calls == 0 && !r.waits && r.left);
      PYC_CHECK(r.engine->open_collectives().empty());
    }
  }

  std::uint64_t draw(std::uint64_t below) { return random_() % below; }

 private:
  struct Ranks {
    std::shared_ptr<Engine> engine;
    std::shared_ptr<SharedCounter> counter;
    std::uint64_t calls;  // to make
    std::uint64_t n;      // of the call
    bool waits, left;
  };

  Ranks& at(Rank rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  void pause(Rank rank) {
    network_.at(network_.now() + static_cast<double>(draw(100)) / 10, [this, rank] { call(rank); });
  }
  void call(Rank rank) {
    Ranks& r = at(rank);
    if (r.calls == 0) {
      r.counter->close();
      r.left = true;
    } else {
      --r.calls;
      r.n = draw(4);
      r.waits = true;
      r.counter->ask(r.n);
    }
    drive(rank);
  }
  void drive(Rank rank) {
    Ranks& r = at(rank);
    while (r.engine->advance()) continue;
    r.engine->check();
    if (!r.waits || !r.counter->has_answer()) return;
    r.waits = false;
    given_.push_back({r.counter->take(), r.n});
    pause(rank);
  }

  std::mt19937_64 random_;
  SimulatedNetwork network_;
  const Nodes nodes_;
  std::vector<Ranks> ranks_;
  std::vector<Interval> given_;
};

/// The intervals fill [kStart, end) without a gap and without an overlap.
void check_each_once(std::vector<Interval> all, std::uint64_t end) {
  std::erase_if(all, [](const Interval& i) { return i.n == 0; });
  std::sort(all.begin(), all.end(), [](const Interval& a, const Interval& b) { return a.first < b.first; });
  std::uint64_t next = kStart;
  for (const Interval& i : all) {
    PYC_CHECK(i.first == next);
    next += i.n;
  }
  PYC_CHECK(next == end);
}

constexpr std::uint64_t kHistories = 5000;

Job job(std::uint64_t seed) {
  const auto size = static_cast<Rank>(1 + seed % 7);
  return {size, static_cast<Rank>(1 + seed / 7 % 3), seed};
}

}  // namespace

PYC_TEST(a_counter_gives_every_number_once) {
  for (std::uint64_t seed = 0; seed < kHistories; ++seed) {
    Job made = job(seed);
    while (made.step()) continue;
    check_each_once(made.given(), made.known());
    made.check_ended();
  }
}

/// What survivors tell each other is enough to give no number twice and to leave none out.
PYC_TEST(a_counter_that_stops_anywhere_can_continue) {
  for (std::uint64_t seed = 0; seed < kHistories; ++seed) {
    Job made = job(seed);
    for (std::uint64_t left = made.draw(60); left > 0 && made.step(); --left) continue;
    check_each_once(made.given(), made.known());
  }
}

PYC_TEST(a_call_that_was_given_up_is_repeated_as_it_was) {
  SimulatedNetwork network(2, {.latency = 1}, 1);
  std::shared_ptr<SharedMemory> shared;
  std::vector<std::shared_ptr<SharedCounter>> counters;
  for (Rank r = 0; r < 2; ++r) {
    counters.push_back(SharedCounter::join(
        std::make_shared<Engine>(network.endpoint(r), Engine::Options{.progress = Progress::kCaller}), "counter", 0,
        Nodes({0, 1}), shared));
  }
  counters[1]->ask(3);
  counters[1]->ask(3);
  bool is_refused = false;
  try {
    counters[1]->ask(2);
  } catch (const std::invalid_argument&) {
    is_refused = true;
  }
  PYC_CHECK(is_refused);
  counters[0]->ask(10);
  PYC_CHECK(counters[0]->take() == 0);
  PYC_CHECK(counters[1]->known() == 0 && !counters[1]->request()->before);
}

}  // namespace pyc
