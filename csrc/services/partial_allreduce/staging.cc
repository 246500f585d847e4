#include "services/partial_allreduce/staging.h"

#include <thread>
#include <utility>

#include "core/error.h"

namespace pyc {

Staging::Lane::Lane(Executor& executor, std::size_t most) : stream(executor.new_stream()), copies(most) {
  for (Queued& copy : copies) copy.done = executor.new_event();
}

Staging::Staging(Executor& executor, const DeviceMemory& memory, std::size_t bytes, std::size_t runs,
                 std::size_t copies)
    : memory_(memory), to_host_(executor, copies), to_device_(executor, copies) {
  while (memory_of_runs_.size() < runs) memory_of_runs_.push_back(executor.allocate_staging(bytes));
}

void Staging::finish() {
  if (std::exchange(is_finished_, true)) return;
  for (Lane* const lane : {&to_host_, &to_device_}) {
    Queued& last = lane->copies.front();
    last.is_queued = attempt([&] { lane->stream->record(*last.done); });
    while (!is_done(last)) std::this_thread::yield();
  }
}

void Staging::copy(OpId op, std::byte* to, const std::byte* from, std::size_t bytes) {
  Lane& lane = DeviceMemory::is_shared(from) ? to_host_ : to_device_;
  if (lane.count == lane.copies.size()) throw InternalError("more copies of a round than its plan has");
  Queued& queued = lane.copies[(lane.first + lane.count++) % lane.copies.size()];
  queued.op = op;
  queued.is_queued = attempt([&] {
    lane.stream->copy(memory_.at(to), memory_.at(from), bytes);
    lane.stream->record(*queued.done);
  });
}

std::optional<OpId> Staging::take_done() {
  const std::optional<OpId> op = take_done(to_host_);
  return op ? op : take_done(to_device_);
}

std::optional<OpId> Staging::take_done(Lane& lane) {
  if (lane.count == 0 || !is_done(lane.copies[lane.first])) return std::nullopt;
  const OpId op = lane.copies[lane.first].op;
  lane.first = (lane.first + 1) % lane.copies.size();
  --lane.count;
  return op;
}

bool Staging::is_done(const Queued& copy) {
  bool is_reached = false;
  const bool is_alive = copy.is_queued && attempt([&] { is_reached = copy.done->reached(); });
  return is_reached || !is_alive;
}

}  // namespace pyc
