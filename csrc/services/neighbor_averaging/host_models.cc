#include "services/neighbor_averaging/host_models.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace pyc {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{8} << 10U;  // stays in the first-level cache

std::size_t bytes_of_model(const ModelShape& shape) { return in_pages(shape.count * size_of(shape.type)); }

/// Calls body(first, length) for consecutive blocks of `count` elements.
template <class Body>
void for_each_block(std::size_t count, std::size_t width, Body body) {
  const std::size_t longest = kBlockBytes / width;
  for (std::size_t first = 0; first < count; first += longest) body(first, std::min(longest, count - first));
}

}  // namespace

void replace_values(Memory& memory, DataType type, std::byte* now, const std::byte* before, const std::byte* values,
                    std::size_t count) {
  const std::size_t width = size_of(type);
  for_each_block(count, width, [&](std::size_t first, std::size_t length) {
    const std::size_t offset = first * width;
    if (std::memcmp(now + offset, before + offset, length * width) == 0) {
      // A copy, because adding zero differences gives NaN if values are infinite.
      return memory.copy(now + offset, values + offset, length * width);
    }
    memory.add_scaled(type, now + offset, before + offset, length, -1);
    memory.add_scaled(type, now + offset, values + offset, length, 1);
  });
}

std::size_t HostModels::bytes(const ModelShape& shape) { return bytes_of_model(shape) * (shape.acceleration ? 2 : 1); }

HostModels::HostModels(Memory& memory, const ModelShape& shape, std::vector<std::shared_ptr<std::byte>> memories,
                       std::size_t local)
    : memory_(memory),
      shape_(shape),
      acceleration_(shape.acceleration.value_or(Acceleration{})),
      width_(size_of(shape.type)),
      memories_(std::move(memories)),
      local_(local),
      scratch_(memory.allocate(kBlockBytes)) {}

std::byte* HostModels::model(std::size_t local, std::size_t element) const {
  return memories_[local].get() + element * width_;
}

std::byte* HostModels::second_model(std::size_t local, std::size_t element) const {
  return model(local, element) + bytes_of_model(shape_);
}

// ------------------------------------------------------------------------------------------------ this rank's model

void HostModels::read(Elements as, const ModelRange& range, std::byte* out) {
  if (as.widened()) return memory_.store(as, out, model(local_, range.first), range.count, 1);
  memory_.copy(out, model(local_, range.first), range.count * width_);
}

void HostModels::apply(Elements as, const ModelRange& range, const std::byte* delta, double factor) {
  if (!as.widened()) return add_to_both(range.first, delta, range.count, factor);
  alignas(64) std::array<std::byte, kBlockBytes> widened;
  for_each_block(range.count, width_, [&](std::size_t first, std::size_t length) {
    memory_.load(as, widened.data(), delta + first * size_of(as.type), length);
    add_to_both(range.first + first, widened.data(), length, factor);
  });
}

void HostModels::add_to_both(std::size_t element, const std::byte* delta, std::size_t count, double factor) {
  memory_.add_scaled(shape_.type, model(local_, element), delta, count, factor);
  if (shape_.acceleration) memory_.add_scaled(shape_.type, second_model(local_, element), delta, count, factor);
}

void HostModels::assign(Elements as, const ModelRange& range, const std::byte* values) {
  memory_.load(as, model(local_, range.first), values, range.count);
  if (!shape_.acceleration) return;
  memory_.copy(second_model(local_, range.first), model(local_, range.first), range.count * width_);
}

void HostModels::read_kept(const ModelRange& range, std::byte* out) {
  memory_.copy(out, model(local_, range.first), range.count * width_);
  if (!shape_.acceleration) return;
  memory_.add_scaled(shape_.type, out, second_model(local_, range.first), range.count, 1);
  memory_.scale(shape_.type, out, range.count, 0.5);
}

void HostModels::replace(const ModelRange& range, const std::byte* before, const std::byte* values) {
  alignas(64) std::array<std::byte, kBlockBytes> now;
  for_each_block(range.count, width_, [&](std::size_t first, std::size_t length) {
    const ModelRange block{range.first + first, length};
    read_kept(block, now.data());
    replace_values(memory_, shape_.type, now.data(), before + first * width_, values + first * width_, length);
    assign({shape_.type, shape_.type}, block, now.data());
  });
}

void HostModels::exchange(const ModelRange& range, std::byte* numbers) {
  add_to_both(range.first, numbers, range.count, 1);
  memory_.copy(numbers, model(local_, range.first), range.count * width_);
}

// ------------------------------------------------------------------------------------------------ averages

void HostModels::mix(std::size_t local, const ModelRange& range) {
  memory_.mix(shape_.type, model(local, range.first), second_model(local, range.first), range.count,
              acceleration_.kept);
}

void HostModels::average(std::size_t other, const ModelRange& range) {
  if (!shape_.acceleration) {
    return memory_.average(shape_.type, model(local_, range.first), model(other, range.first), range.count);
  }
  mix(local_, range);
  mix(other, range);
  const double pull = 2 * acceleration_.alpha;
  std::byte* const step = scratch_.get();
  for_each_block(range.count, width_, [&](std::size_t offset, std::size_t count) {
    const std::size_t first = range.first + offset;
    memory_.copy(step, model(other, first), count * width_);
    memory_.meet(shape_.type, model(local_, first), step, count);
    memory_.add_scaled(shape_.type, model(other, first), step, count, -1);
    memory_.add_scaled(shape_.type, second_model(local_, first), step, count, pull);
    memory_.add_scaled(shape_.type, second_model(other, first), step, count, -pull);
  });
}

std::shared_ptr<std::byte[]> HostModels::make_values() { return memory_.allocate(shape_.count * width_); }

void HostModels::lend(const ModelRange& range, std::byte* values) {
  if (shape_.acceleration) mix(local_, range);
  memory_.copy(values, model(local_, range.first), range.count * width_);
}

void HostModels::meet(const ModelRange& range, std::byte* values) {
  if (shape_.acceleration) mix(local_, range);
  memory_.meet(shape_.type, model(local_, range.first), values, range.count);
  if (!shape_.acceleration) return;
  memory_.add_scaled(shape_.type, second_model(local_, range.first), values, range.count, 2 * acceleration_.alpha);
}

void HostModels::subtract(const ModelRange& range, const std::byte* step) {
  memory_.add_scaled(shape_.type, model(local_, range.first), step, range.count, -1);
  if (!shape_.acceleration) return;
  memory_.add_scaled(shape_.type, second_model(local_, range.first), step, range.count, -2 * acceleration_.alpha);
}

}  // namespace pyc
