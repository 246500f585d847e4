// A rank that is stopped while it holds its board's mutex: the calls of others keep their limits.
#include <chrono>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cpp_test.h"
#include "memory/memory.h"
#include "node/shared_memory.h"
#include "services/partial_allreduce/partial_allreduce.h"
#include "transport/loopback.h"

namespace pyc {
namespace {

constexpr Seconds kLimit = 0.2;
constexpr Seconds kLate = 1;  // beyond the limit: another's lock, on a busy machine

/// Two ranks on one board, in one thread. What a rank shares begins with the mutex.
struct Pair {
  explicit Pair(PartialAllreduceOptions options) {
    options.count = 4;
    options.name = "sum";
    const Nodes nodes({0, 0});
    shared = SharedMemory::create(PartialAllreduce::bytes_of_board(options, nodes, 0));
    for (auto& transport : make_loopback(2, 0, 0)) {
      auto engine = std::make_shared<Engine>(std::move(transport), Engine::Options{.progress = Progress::kCaller});
      members.push_back(PartialAllreduce::join(std::move(engine), host_memory(), options, nodes, shared));
      members.back()->while_stopped([this] { ++looks; }, {});
    }
  }
  RobustMutex& mutex() const { return *reinterpret_cast<RobustMutex*>(shared->data()); }

  std::shared_ptr<SharedMemory> shared;
  std::vector<std::shared_ptr<PartialAllreduce>> members;
  int looks = 0;
};

/// What a call that keeps its limit says.
template <class Action>
std::string stall_of(Action action) {
  const auto begin = std::chrono::steady_clock::now();
  std::string text;
  try {
    action();
  } catch (const StallError& error) {
    text = error.what();
  }
  const std::chrono::duration<Seconds> waited = std::chrono::steady_clock::now() - begin;
  PYC_CHECK(!text.empty());
  PYC_CHECK(waited.count() >= kLimit / 2 && waited.count() < kLimit + kLate);
  return text;
}

PYC_TEST(calls_keep_their_limits_while_the_owner_of_the_mutex_is_stopped) {
  const double one[4] = {1, 1, 1, 1};
  const auto* const data = reinterpret_cast<const std::byte*>(one);
  for (const bool direct : {true, false}) {
    PartialAllreduceOptions options;
    options.type = DataType::kFloat64;
    options.policy.kind = direct ? Policy::Kind::kFull : Policy::Kind::kSolo;
    Pair pair(options);
    PartialAllreduce& first = *pair.members[0];
    PartialAllreduce& second = *pair.members[1];
    const std::shared_ptr<Call> waiting = first.contribute(data);
    const std::shared_ptr<Call> arrived = second.contribute(data);
    {
      const std::lock_guard stopped(pair.mutex());
      if (!direct) {
        PYC_CHECK(!first.test(*waiting));
        stall_of([&] { first.wait(*waiting, kLimit, {}); });
        stall_of([&] { second.contribute(data, kLimit); });
        PYC_CHECK(pair.looks > 0);
      }
      const std::string text = stall_of([&] { second.start_flush(kLimit); });
      PYC_CHECK(text.find("'sum': not begun") != std::string::npos);
      PYC_CHECK(text.find("Call it again") != std::string::npos);
    }
    first.wait(*waiting, 10, {});
    second.wait(*arrived, 10, {});
    const std::shared_ptr<Call> flush = second.start_flush(kLimit);
    const std::shared_ptr<Call> other = first.start_flush(kLimit);
    second.wait(*flush, 10, {});
    first.wait(*other, 10, {});
    first.close();
    second.close();
  }
}

/// The leader's engine cannot work on the board, and still says that it lives. The engine of its mate, which has no
/// neighbor and could speak for the machine as well, does not run.
PYC_TEST(a_machine_is_not_lost_while_the_owner_of_a_mutex_is_stopped) {
  constexpr Seconds kHeartbeat = 0.4;
  constexpr Seconds kStopped = 1.2;
  PartialAllreduceOptions options;
  options.count = 4;
  options.type = DataType::kFloat64;
  options.name = "sum";
  const Nodes nodes({0, 0, 1});
  std::vector<std::shared_ptr<SharedMemory>> shared;
  for (const Rank leader : nodes.leaders()) {
    shared.push_back(SharedMemory::create(PartialAllreduce::bytes_of_board(options, nodes, leader)));
  }
  std::vector<std::shared_ptr<Engine>> engines;
  std::vector<std::shared_ptr<PartialAllreduce>> members;
  for (auto& transport : make_loopback(3, 0, 0)) {
    engines.push_back(std::make_shared<Engine>(std::move(transport), Engine::Options{.progress = Progress::kCaller}));
    const auto node = static_cast<std::size_t>(nodes.of(engines.back()->rank()));
    members.push_back(PartialAllreduce::join(engines.back(), host_memory(), options, nodes, shared[node]));
  }
  for (const auto& engine : engines) engine->start_heartbeat({0, 0, 1}, kHeartbeat);
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto begin = now();
  {
    const std::lock_guard stopped(*reinterpret_cast<RobustMutex*>(shared[0]->data()));
    while (std::chrono::duration<Seconds>(now() - begin).count() < kStopped) {
      for (const std::size_t leader : {0, 2}) engines[leader]->advance();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  PYC_CHECK(std::chrono::duration<Seconds>(now() - begin).count() < kStopped + kLate);
  for (const std::size_t leader : {0, 2}) engines[leader]->check();
}

}  // namespace
}  // namespace pyc
