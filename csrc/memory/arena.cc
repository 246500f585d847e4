#include "memory/arena.h"

#include <algorithm>
#include <array>

namespace pyc {
namespace {

constexpr std::size_t kAlignment = 256;  // of parts of an arena, as of what devices allocate

}  // namespace

Arena::Arena(Executor& executor, const Shape& shape, std::size_t slot)
    : executor_(executor),
      shape_(shape),
      slot_(slot),
      memory_(executor.allocate(part_bytes() * (shape.elements.widened() ? 3 : 2))),
      mappings_(shape.slots),
      in_(executor.new_stream()),
      work_(executor.new_stream()),
      out_(executor.new_stream()),
      called_(executor.new_event()),
      deposited_(executor.new_event()),
      reduced_(executor.new_event()),
      given_(executor.new_event()) {}

std::size_t Arena::part_bytes() const {
  const std::size_t bytes = shape_.count * size_of(shape_.elements.accumulator);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void Arena::follow(Stream& stream, Stream& caller) {
  caller.record(*called_);
  stream.wait(*called_);
}

void Arena::deposit(const std::byte* values, Stream& producer) {
  follow(*in_, producer);
  in_->wait(*reduced_);  // which read the snapshot
  in_->load(shape_.elements, snapshot(slot_), values, shape_.count);
  in_->record(*deposited_);
  producer.wait(*deposited_);
}

void Arena::accumulate(const std::byte* values, Stream& producer) {
  const Elements partial{shape_.elements.accumulator, shape_.elements.accumulator};
  std::byte* const own = snapshot(slot_);
  std::array<const std::byte*, 2> terms{own, values};
  follow(*in_, producer);
  in_->wait(*reduced_);
  if (shape_.elements.widened()) {
    in_->load(shape_.elements, scratch(), values, shape_.count);
    terms[1] = scratch();
  }
  in_->fold(partial, shape_.op, {&own, 1}, terms, shape_.count, 1);
  in_->record(*deposited_);
  producer.wait(*deposited_);
}

void Arena::reduce(std::vector<std::size_t> contributors, const std::vector<std::size_t>& members, std::size_t first,
                   std::size_t length) {
  std::sort(contributors.begin(), contributors.end());  // whoever came when: totals have one order
  const Elements partial{shape_.elements.accumulator, shape_.elements.accumulator};
  const std::size_t offset = first * size_of(partial.type);
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  for (const std::size_t slot : contributors) inputs.push_back(snapshot(slot) + offset);
  for (const std::size_t slot : members) outputs.push_back(result(slot) + offset);
  work_->wait(*deposited_);
  work_->wait(*given_);  // which read the result before
  work_->fold(partial, shape_.op, outputs, inputs, length, 1);
  work_->record(*reduced_);
}

void Arena::give(std::byte* out, std::size_t divisor, Stream& consumer) {
  follow(*out_, consumer);
  out_->wait(*reduced_);
  out_->store(shape_.elements, out, result(slot_), shape_.count, divisor);
  out_->record(*given_);
  consumer.wait(*given_);
}

bool Arena::advance() {
  if (!ending_.empty() && reduced_->reached()) ending_.clear();
  return ending_.empty();
}

}  // namespace pyc
