#include "memory/group_data.h"

#include <cstring>

namespace pyc {
namespace {

template <class T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
void write(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

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
  const DataType accumulator = data.elements().accumulator;
  std::byte* const behind = work + data.count * size_of(accumulator);
  const double weight = data.weight.value_or(0);
  if (accumulator == DataType::kFloat64) {
    write(behind, weight);
  } else {
    write(behind, static_cast<float>(weight));
  }
}

double total_weight(const GroupData& data, const std::byte* work) {
  const DataType accumulator = data.elements().accumulator;
  const std::byte* const behind = work + data.count * size_of(accumulator);
  return accumulator == DataType::kFloat64 ? read<double>(behind) : static_cast<double>(read<float>(behind));
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
