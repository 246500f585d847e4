#include "services/neighbor_averaging/device_models.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/checked.h"
#include "core/error.h"

namespace pyc {
namespace {

std::size_t bytes_of_arena(const ModelShape& shape) {
  return checked_product(in_pages(checked_product(shape.count, size_of(shape.type))), shape.acceleration ? 2 : 1);
}

}  // namespace

/// A call's use of a lane. Its queued work is done when this object ends, by `finish` or by an error.
class DeviceModels::Turn {
 public:
  Turn(const DeviceModels& models, Lane& lane) : lane_(lane), lock_(lane.mutex) {
    if (models.is_detached_) throw ClosedError("the collective has ended: what ranks had on their devices is freed");
  }
  ~Turn() {
    if (has_work_) finish_at_end(*lane_.stream, *lane_.done);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  Stream& stream() {
    has_work_ = true;
    return *lane_.stream;
  }
  std::byte* scratch(std::size_t which) { return lane_.scratch[which].get(); }

  /// Waits without a limit, because only the library's own work is queued, which ends.
  void finish() {
    pyc::finish(*lane_.stream, *lane_.done);
    has_work_ = false;
  }

 private:
  Lane& lane_;
  const std::lock_guard<std::mutex> lock_;
  bool has_work_ = false;
};

// ------------------------------------------------------------------------------------------------ arenas

DeviceModels::DeviceModels(std::shared_ptr<Executor> executor, const ModelShape& shape,
                           const std::shared_ptr<std::byte>& seats, std::size_t ranks, std::size_t local)
    : executor_(std::move(executor)),
      shape_(shape),
      acceleration_(shape.acceleration.value_or(Acceleration{})),
      held_{shape.type, shape.type},
      width_(size_of(shape.type)),
      local_(local),
      arena_(executor_->allocate_shared(bytes_of_arena(shape))),
      arenas_(ranks),
      staging_(executor_->allocate_staging(shape.segment_bytes())),
      seats_(seats, ranks, local) {
  make(application_, 1);
  make(averages_, shape.acceleration ? 2 : 1);
  clear();
  seats_.take(*executor_, arena_.get());
}

void DeviceModels::make(Lane& lane, std::size_t scratch) {
  lane.stream = executor_->new_stream();
  lane.done = executor_->new_event();
  for (std::size_t i = 0; i < scratch; ++i) lane.scratch.push_back(executor_->allocate(shape_.segment_bytes()));
}

void DeviceModels::clear() {
  const std::size_t bytes = bytes_of_arena(shape_);
  std::memset(staging_.get(), 0, shape_.segment_bytes());
  Turn turn(*this, application_);
  for (std::size_t first = 0; first < bytes; first += shape_.segment_bytes()) {
    turn.stream().copy(arena_.get() + first, staging_.get(), std::min(shape_.segment_bytes(), bytes - first));
  }
  turn.finish();
}

DeviceModels::~DeviceModels() {
  if (!release()) static_cast<void>(arena_.release());
}

void DeviceModels::map_others() {
  seats_.map_others([this](std::size_t rank, const SharedHandle& arena) { arenas_[rank] = executor_->map(arena); });
}

bool DeviceModels::release() {
  const auto unmap = [this] {
    const std::scoped_lock all(application_.mutex, averages_.mutex);
    is_detached_ = true;
    arenas_.clear();
  };
  return seats_.release(unmap, [this] { arena_.reset(); });
}

std::byte* DeviceModels::model(std::size_t local, std::size_t element) const {
  return (local == local_ ? arena_ : arenas_[local]).get() + element * width_;
}

std::byte* DeviceModels::second_model(std::size_t local, std::size_t element) const {
  return model(local, element) + bytes_of_arena(shape_) / 2;
}

// ------------------------------------------------------------------------------------------------ arithmetic

/// into = a + factor * b.
void DeviceModels::sum(Stream& s, std::byte* into, const std::byte* a, const std::byte* b, double factor,
                       std::size_t count) const {
  const std::array<const std::byte*, 2> terms{a, b};
  const std::array<double, 2> factors{1, factor};
  s.weighted_sum(shape_.type, {&into, 1}, terms, factors, count);
}

void DeviceModels::scale(Stream& s, std::byte* data, double factor, std::size_t count) const {
  const std::byte* const term = data;
  s.weighted_sum(shape_.type, {&data, 1}, {&term, 1}, {&factor, 1}, count);
}

void DeviceModels::halve(Stream& s, std::byte* data, std::size_t count) const {
  const std::byte* const term = data;
  s.fold(held_, ReduceOp::kAvg, {&data, 1}, {&term, 1}, count, 2);
}

void DeviceModels::mean(Stream& s, Outputs into, const std::byte* a, const std::byte* b, std::size_t count) const {
  const std::array<const std::byte*, 2> terms{a, b};
  s.fold(held_, ReduceOp::kAvg, into, terms, count, 2);
}

void DeviceModels::add(Stream& s, const ModelRange& range, const std::byte* step, double factor,
                       double factor_of_second) const {
  std::byte* const first = model(local_, range.first);
  sum(s, first, first, step, factor, range.count);
  if (!shape_.acceleration) return;
  std::byte* const second = second_model(local_, range.first);
  sum(s, second, second, step, factor_of_second, range.count);
}

void DeviceModels::copy_kept(Turn& turn, const ModelRange& range, std::byte* out) const {
  const std::byte* kept = model(local_, range.first);
  if (shape_.acceleration) {
    std::byte* const half_way = turn.scratch(0);
    mean(turn.stream(), {&half_way, 1}, kept, second_model(local_, range.first), range.count);
    kept = half_way;
  }
  turn.stream().copy(out, kept, range.count * width_);
}

void DeviceModels::mix(Turn& turn, std::size_t local, const ModelRange& range) const {
  Stream& s = turn.stream();
  std::byte* const a = model(local, range.first);
  std::byte* const b = second_model(local, range.first);
  std::byte* const middle = turn.scratch(0);
  std::byte* const half = turn.scratch(1);
  mean(s, {&middle, 1}, a, b, range.count);
  sum(s, half, a, b, -1, range.count);
  halve(s, half, range.count);
  scale(s, half, acceleration_.kept, range.count);
  sum(s, a, middle, half, 1, range.count);
  sum(s, b, middle, half, -1, range.count);
}

// ------------------------------------------------------------------------------------------------ this rank's model

void DeviceModels::read(Elements as, const ModelRange& range, std::byte* out) {
  Turn turn(*this, application_);
  turn.stream().store(as, out, model(local_, range.first), range.count, 1);
  turn.finish();
}

void DeviceModels::apply(Elements as, const ModelRange& range, const std::byte* delta, double factor) {
  Turn turn(*this, application_);
  if (as.widened()) {
    turn.stream().load(as, turn.scratch(0), delta, range.count);
    delta = turn.scratch(0);
  }
  add(turn.stream(), range, delta, factor, factor);
  turn.finish();
}

void DeviceModels::assign(Elements as, const ModelRange& range, const std::byte* values) {
  Turn turn(*this, application_);
  std::byte* const first = model(local_, range.first);
  turn.stream().load(as, first, values, range.count);
  if (shape_.acceleration) turn.stream().copy(second_model(local_, range.first), first, range.count * width_);
  turn.finish();
}

void DeviceModels::read_kept(const ModelRange& range, std::byte* out) {
  Turn turn(*this, application_);
  copy_kept(turn, range, staging_.get());
  turn.finish();
  std::memcpy(out, staging_.get(), range.count * width_);
}

void DeviceModels::replace(const ModelRange& range, const std::byte* before, const std::byte* values) {
  Turn turn(*this, application_);
  copy_kept(turn, range, staging_.get());
  turn.finish();
  replace_values(host_memory(), shape_.type, staging_.get(), before, values, range.count);
  std::byte* const first = model(local_, range.first);
  turn.stream().copy(first, staging_.get(), range.count * width_);
  if (shape_.acceleration) turn.stream().copy(second_model(local_, range.first), first, range.count * width_);
  turn.finish();
}

void DeviceModels::exchange(const ModelRange& range, std::byte* numbers) {
  const std::size_t bytes = range.count * width_;
  Turn turn(*this, application_);
  std::memcpy(staging_.get(), numbers, bytes);
  turn.stream().copy(turn.scratch(0), staging_.get(), bytes);
  add(turn.stream(), range, turn.scratch(0), 1, 1);
  turn.stream().copy(staging_.get(), model(local_, range.first), bytes);
  turn.finish();
  std::memcpy(numbers, staging_.get(), bytes);
}

// ------------------------------------------------------------------------------------------------ averages

void DeviceModels::average(std::size_t other, const ModelRange& range) {
  Turn turn(*this, averages_);
  Stream& s = turn.stream();
  std::byte* const own = model(local_, range.first);
  std::byte* const others = model(other, range.first);
  if (shape_.acceleration) {
    mix(turn, local_, range);
    mix(turn, other, range);
    std::byte* const step = turn.scratch(0);
    std::byte* const others_second = second_model(other, range.first);
    const double pull = 2 * acceleration_.alpha;
    sum(s, step, others, own, -1, range.count);
    halve(s, step, range.count);
    add(s, range, step, 1, pull);
    sum(s, others, others, step, -1, range.count);
    sum(s, others_second, others_second, step, -pull, range.count);
  } else {
    const std::array<std::byte*, 2> both{own, others};
    mean(s, both, own, others, range.count);
  }
  turn.finish();
}

std::shared_ptr<std::byte[]> DeviceModels::make_values() {
  return executor_->allocate_staging(checked_product(shape_.count, width_));
}

void DeviceModels::lend(const ModelRange& range, std::byte* values) {
  Turn turn(*this, averages_);
  if (shape_.acceleration) mix(turn, local_, range);
  turn.stream().copy(values, model(local_, range.first), range.count * width_);
  turn.finish();
}

void DeviceModels::meet(const ModelRange& range, std::byte* values) {
  Turn turn(*this, averages_);
  Stream& s = turn.stream();
  std::byte* const step = turn.scratch(0);
  if (shape_.acceleration) mix(turn, local_, range);
  s.copy(step, values, range.count * width_);
  sum(s, step, step, model(local_, range.first), -1, range.count);
  halve(s, step, range.count);
  add(s, range, step, 1, 2 * acceleration_.alpha);
  s.copy(values, step, range.count * width_);
  turn.finish();
}

void DeviceModels::subtract(const ModelRange& range, const std::byte* step) {
  Turn turn(*this, averages_);
  turn.stream().copy(turn.scratch(0), step, range.count * width_);
  add(turn.stream(), range, turn.scratch(0), -1, -2 * acceleration_.alpha);
  turn.finish();
}

}  // namespace pyc
