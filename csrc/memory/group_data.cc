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

}  // namespace

void load_values(Memory& memory, const GroupData& data, std::byte* work) {
  const Elements elements = data.elements();
  memory.load(elements, work, data.values, data.count);
  if (!data.weight) return;
  memory.scale(elements.accumulator, work, data.count, *data.weight);
  std::byte* const behind = work + data.count * size_of(elements.accumulator);
  if (elements.accumulator == DataType::kFloat64) {
    write(behind, *data.weight);
  } else {
    write(behind, static_cast<float>(*data.weight));
  }
}

double total_weight(const GroupData& data, const std::byte* work) {
  const DataType accumulator = data.elements().accumulator;
  const std::byte* const behind = work + data.count * size_of(accumulator);
  return accumulator == DataType::kFloat64 ? read<double>(behind) : static_cast<double>(read<float>(behind));
}

void store_values(Memory& memory, const GroupData& data, const std::byte* work, std::size_t contributors) {
  const std::size_t divisor = data.op == ReduceOp::kAvg && !data.weight ? contributors : 1;
  memory.store(data.elements(), data.values, work, data.count, divisor);
}

}  // namespace pyc
