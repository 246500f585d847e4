#include "memory/group_data.h"

#include "memory/numbers.h"

namespace pyc {
namespace {

std::size_t divisor_of(const GroupData& data, std::size_t contributors) {
  return data.op == ReduceOp::kAvg && !data.weight ? contributors : 1;
}

}  // namespace

void load_values(Memory& memory, const GroupData& data, std::byte* work) {
  const Elements elements = data.elements();
  memory.load(elements, work, data.values, data.count);
  if (!data.weight) return;
  memory.scale(elements.accumulator, work, data.count, *data.weight);
  write_weight(data, work);
}

void write_weight(const GroupData& data, std::byte* work) {
  of_float(data.elements().accumulator, "weight",
           [&](auto zero) { store_at(work, data.count, static_cast<decltype(zero)>(data.weight.value_or(0))); });
}

double total_weight(const GroupData& data, const std::byte* work) {
  return of_float(data.elements().accumulator, "weight",
                  [&](auto zero) { return static_cast<double>(load_at<decltype(zero)>(work, data.count)); });
}

void store_values(Memory& memory, const GroupData& data, const std::byte* work, std::size_t contributors) {
  memory.store(data.elements(), data.values, work, data.count, divisor_of(data, contributors));
}

void load_values(Stream& stream, const GroupData& data, std::byte* work) {
  const Elements elements = data.elements();
  if (data.weight && !elements.widened()) {
    const std::byte* const values = data.values;
    stream.weighted_sum(elements.type, {&work, 1}, {&values, 1}, {&*data.weight, 1}, data.count);
    return;
  }
  stream.load(elements, work, data.values, data.count);
  if (data.weight) scale(stream, elements.accumulator, work, *data.weight, data.count);
}

void store_values(Stream& stream, const GroupData& data, const std::byte* work, std::size_t contributors) {
  stream.store(data.elements(), data.values, work, data.count, divisor_of(data, contributors));
}

void scale(Stream& stream, DataType type, std::byte* data, double factor, std::size_t count) {
  const std::byte* const values = data;
  stream.weighted_sum(type, {&data, 1}, {&values, 1}, {&factor, 1}, count);
}

}  // namespace pyc
