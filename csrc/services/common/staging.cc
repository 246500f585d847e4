#include "services/common/staging.h"

#include <algorithm>
#include <functional>
#include <thread>
#include <utility>

#include "core/error.h"

namespace pyc {

Staging::Lane::Lane(Executor& executor, std::size_t most) : stream(executor.new_stream()), copies(most) {
  for (Queued& copy : copies) copy.done = executor.new_event();
}

Staging::Staging(Executor& executor, const DeviceMemory* memory, std::size_t bytes, std::size_t runs,
                 std::size_t copies)
    : memory_(memory),
      bytes_(std::max<std::size_t>(bytes, 1)),
      to_host_(executor, copies),
      to_device_(executor, copies) {
  while (memory_of_runs_.size() < runs) memory_of_runs_.push_back(executor.allocate_staging(bytes));
}

bool Staging::has_stopped() {
  for (Lane* const lane : lanes()) {
    Queued& last = lane->copies.front();
    if (!is_marked_) last.is_queued = attempt([&] { lane->stream->record(*last.done); });
  }
  is_marked_ = true;
  return is_done(to_host_.copies.front()) && is_done(to_device_.copies.front());
}

void Staging::finish() {
  while (!has_stopped()) std::this_thread::yield();
}

void Staging::follow(Event& event) {
  for (Lane* const lane : lanes()) lane->stream->wait(event);
}

void Staging::copy(OpId op, std::byte* to, const std::byte* from, std::size_t bytes) {
  Lane& lane = is_of_host(from) ? to_device_ : to_host_;
  if (lane.count == lane.copies.size()) throw InternalError("more copies of a run than its plan has");
  Queued& queued = lane.copies[(lane.first + lane.count++) % lane.copies.size()];
  queued.op = op;
  queued.is_queued = attempt([&] {
    lane.stream->copy(at(to), at(from), bytes);
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

bool Staging::is_of_host(const std::byte* address) const {
  return std::any_of(memory_of_runs_.begin(), memory_of_runs_.end(), [&](const ExecutorMemory& memory) {
    return !std::less<>{}(address, memory.get()) && std::less<>{}(address, memory.get() + bytes_);
  });
}

std::byte* Staging::at(const std::byte* address) const {
  return memory_ == nullptr ? const_cast<std::byte*>(address) : memory_->at(address);
}

}  // namespace pyc
