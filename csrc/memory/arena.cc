#include "memory/arena.h"

#include <array>

#include "core/checked.h"

namespace pyc {
namespace {

constexpr std::size_t kAlignment = 256;  // of buffers, as of what devices allocate

}  // namespace

Arena::Arena(Executor& executor, const Shape& shape, std::size_t slot)
    : executor_(executor),
      shape_(shape),
      slot_(slot),
      memory_(executor.allocate_shared(
          checked_product(shape.buffers + (shape.elements.widened() ? 1 : 0), buffer_bytes()))),
      mappings_(shape.slots),
      in_(executor.new_stream()),
      work_(executor.new_stream()),
      out_(executor.new_stream()),
      called_(executor.new_event()),
      deposited_(executor.new_event()),
      folded_(executor.new_event()),
      given_(executor.new_event()) {}

std::size_t Arena::buffer_bytes() const {
  const std::size_t bytes = checked_product(shape_.count, size_of(shape_.elements.accumulator));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::byte* Arena::at(const Place& place) const {
  std::byte* const base = place.slot == slot_ ? memory_.get() : mappings_[place.slot].get();
  return base + place.buffer * buffer_bytes();
}

void Arena::abandon() {
  static_cast<void>(memory_.release());
  for (ExecutorMemory& mapping : mappings_) static_cast<void>(mapping.release());
}

void Arena::follow(Stream& stream, Stream& caller) {
  caller.record(*called_);
  stream.wait(*called_);
}

void Arena::deposit(std::size_t buffer, const std::byte* values, Stream& producer) {
  follow(*in_, producer);
  in_->load(shape_.elements, own(buffer), values, shape_.count);
  in_->record(*deposited_);
  producer.wait(*deposited_);
}

void Arena::accumulate(std::size_t buffer, const std::byte* values, Stream& producer) {
  const Elements partial{shape_.elements.accumulator, shape_.elements.accumulator};
  std::byte* const total = own(buffer);
  std::array<const std::byte*, 2> terms{total, values};
  follow(*in_, producer);
  if (shape_.elements.widened()) {
    in_->load(shape_.elements, scratch(), values, shape_.count);
    terms[1] = scratch();
  }
  in_->fold(partial, shape_.op, {&total, 1}, terms, shape_.count, 1);
  in_->record(*deposited_);
  producer.wait(*deposited_);
}

void Arena::fold(const std::vector<Place>& inputs, const Place& output, std::size_t first, std::size_t length) {
  const Elements partial{shape_.elements.accumulator, shape_.elements.accumulator};
  const std::size_t offset = first * size_of(partial.type);
  std::vector<const std::byte*> from;
  for (const Place& input : inputs) from.push_back(at(input) + offset);
  std::byte* const into = at(output) + offset;
  work_->fold(partial, shape_.op, {&into, 1}, from, length, 1);
  work_->record(*folded_);
}

void Arena::give(const Place& from, std::byte* out, std::size_t divisor, Stream& consumer) {
  follow(*out_, consumer);
  out_->store(shape_.elements, out, at(from), shape_.count, divisor);
  out_->record(*given_);
  consumer.wait(*given_);
}

void Arena::mark() {
  in_->record(*deposited_);
  work_->record(*folded_);
  out_->record(*given_);
}

}  // namespace pyc
