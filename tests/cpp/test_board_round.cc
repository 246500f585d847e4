#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "cpp_test.h"
#include "memory/memory.h"
#include "services/partial_allreduce/board.h"
#include "services/partial_allreduce/results.h"

namespace pyc {
namespace {

constexpr std::size_t kCount = 1 << 16;  // long enough for its results to be released early

/// Of doubles; calls something before it fills.
class Sums final : public ReductionMemory {
 public:
  std::function<void()> before_fill = [] {};

  BufferPtr allocate(std::size_t bytes) override { return {new std::byte[bytes], {this}}; }
  void release(std::byte* data) noexcept override { delete[] data; }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void load(Elements /*elements*/, std::byte* into, const std::byte* from, std::size_t count) override {
    std::memcpy(into, from, count * sizeof(double));
  }
  void reduce(Elements elements, ReduceOp /*op*/, std::byte* into, const std::byte* from, std::size_t count) override {
    add(elements, into, from, count, 1);
  }
  void add(Elements /*elements*/, std::byte* into, const std::byte* from, std::size_t count,
           std::size_t /*divisor*/) override {
    for (std::size_t i = 0; i < count; ++i) value(into, i) += value(from, i);
  }
  void store(Elements elements, std::byte* into, const std::byte* from, std::size_t count,
             std::size_t /*divisor*/) override {
    load(elements, into, from, count);
  }
  void fill_identity(Elements /*elements*/, ReduceOp /*op*/, std::byte* into, std::size_t count) override {
    before_fill();
    std::memset(into, 0, count * sizeof(double));
  }

  static double& value(std::byte* data, std::size_t i) { return reinterpret_cast<double*>(data)[i]; }
  static double value(const std::byte* data, std::size_t i) { return reinterpret_cast<const double*>(data)[i]; }
};

BoardShape shape_of_two() {
  BoardShape shape;
  shape.ranks = {0, 1};
  shape.size = 2;
  shape.count = kCount;
  shape.elements = elements_of(DataType::kFloat64, ReduceOp::kSum);
  shape.op = ReduceOp::kSum;
  shape.records = 2;
  shape.keeps_totals = true;
  return shape;
}

/// A round of rank 0 alone, which contributes this and is given the result.
void make_round(Board& board, Sums& memory, RoundNumber round, double contribution) {
  std::unique_lock<BoardMutex> lock(board.mutex());
  BoardSlot& own = board.ranks().own();
  own.deposit = board.buffers().take();
  for (std::size_t i = 0; i < kCount; ++i) Sums::value(board.buffers().data(own.deposit), i) = contribution;
  own.fresh_for = round;
  board.round().arrive();
  board.round().start(0);
  PYC_CHECK(board.round().work(lock, memory));
  board.round().complete({.initiator = 0, .contributors = 1, .active = 1, .flush = false, .last = false});
  own.given = round + 1;
  board.records().give(round, round + 1);
}

}  // namespace

/// Rank 1 is given nothing: of what it has missed the oldest round is added to its total when it leaves.
PYC_TEST(a_rank_may_leave_while_a_round_is_added_to_its_total) {
  const BoardShape shape = shape_of_two();
  const auto shared = SharedMemory::create_private(Board::bytes(shape));
  Board first(shared, shape, 0, true);
  Board second(shared, shape, 1, false);
  Sums memory;
  make_round(first, memory, 0, 3);
  make_round(first, memory, 1, 5);
  BufferNumber taken = kNoBuffer;
  memory.before_fill = [&] {
    const std::unique_lock<BoardMutex> lock(second.mutex());
    second.ranks().own().owed = 0;
    second.records().give(0, second.completed());
    second.ranks().leave(true);
    taken = second.buffers().take();  // ... and another rank writes to whatever is free
    for (std::size_t i = 0; i < kCount; ++i) Sums::value(second.buffers().data(taken), i) = -1e9;
  };
  make_round(first, memory, 2, 7);
  PYC_CHECK(taken != kNoBuffer);
  const RoundTotal& total = second.ranks().own().total;
  PYC_CHECK(total.upto == 1);
  for (std::size_t i = 0; i < kCount; ++i) PYC_CHECK(Sums::value(first.buffers().data(total.buffer), i) == 3);
}

/// What nobody is to be given any more is free: the next round begins with few buffers.
PYC_TEST(results_that_everybody_has_are_released) {
  BoardShape shape = shape_of_two();
  shape.records = 9;
  const auto shared = SharedMemory::create_private(Board::bytes(shape));
  Board first(shared, shape, 0, true);
  Board second(shared, shape, 1, false);
  Sums memory;
  {
    const std::unique_lock<BoardMutex> lock(second.mutex());
    second.ranks().own().owed = 0;
    second.ranks().leave(true);
  }
  for (RoundNumber round = 0; round < 20; ++round) make_round(first, memory, round, 1);
  PYC_CHECK(first.buffers().most_taken() == 1);
}

/// The call counts as done from `collect` on, so its result may not be lost.
PYC_TEST(a_result_is_given_although_a_rank_dies_while_it_is_computed) {
  const BoardShape shape = shape_of_two();
  const auto shared = SharedMemory::create_private(Board::bytes(shape));
  Board first(shared, shape, 0, true);
  const auto second = std::make_shared<Board>(shared, shape, 1, false);
  Sums memory;
  make_round(first, memory, 0, 3);
  make_round(first, memory, 1, 5);
  memory.before_fill = [&] {
    std::thread([&] { first.mutex().lock(); }).join();  // dies in the critical section
  };
  Results results(memory, second, 8);
  Call call;
  call.round = 1;
  std::unique_lock<BoardMutex> lock(second->mutex());
  Results::Given given = results.collect(call);
  results.publish(std::move(given), lock);
  PYC_CHECK(!lock.owns_lock());
  std::vector<double> sum(kCount);
  PYC_CHECK(results.read(reinterpret_cast<std::byte*>(sum.data())));
  PYC_CHECK(sum.front() == 8 && sum.back() == 8);
  bool is_told = false;
  try {
    lock.lock();
  } catch (const RankFailedError&) {
    is_told = true;
  }
  PYC_CHECK(is_told);
}

}  // namespace pyc
