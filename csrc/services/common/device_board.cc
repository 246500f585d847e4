#include "services/common/device_board.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <new>
#include <stdexcept>
#include <utility>

#include "core/error.h"

namespace pyc {
namespace {

bool contains(LocalRanks ranks, std::size_t local) { return ((ranks >> local) & 1U) != 0; }

/// Calls use(local rank) for each, ascending: so that totals have one order, whoever came when.
template <class Use>
void for_each_rank(LocalRanks ranks, Use use) {
  for (; ranks != 0; ranks &= ranks - 1) use(static_cast<std::size_t>(std::countr_zero(ranks)));
}

/// Part `index` of `count` elements, at a multiple of so many that vector loads stay aligned.
Interval aligned_part(std::size_t count, std::size_t parts, std::size_t index) {
  constexpr std::size_t kUnit = 64;
  const Interval units = balanced_part((count + kUnit - 1) / kUnit, parts, index);
  const std::size_t first = std::min(units.first * kUnit, count);
  return {first, std::min((units.first + units.count) * kUnit, count) - first};
}

}  // namespace

// ------------------------------------------------------------------------------------------------ begin and end

void DeviceBoard::prepare(std::byte* control) { ::new (control) Control; }

DeviceBoard::DeviceBoard(Executor& executor, const Shape& shape, std::vector<Rank> ranks, std::size_t local,
                         std::shared_ptr<std::byte> control)
    : ranks_(std::move(ranks)),
      local_(local),
      keep_(shape.keep),
      control_(control, reinterpret_cast<Control*>(control.get())),
      arena_(executor, {shape.elements, shape.op, shape.count, ranks_.size(), Control::kBuffers}, local),
      seats_({control_, control_->arenas.data()}, ranks_.size(), local) {
  if (ranks_.size() > Control::kMostRanks) {
    throw std::runtime_error("a device board: expected at most " + std::to_string(Control::kMostRanks) +
                             " ranks of a node, got " + std::to_string(ranks_.size()));
  }
  control_->events.check();
  seats_.take(arena_.share());
}

void DeviceBoard::attach() {
  seats_.map_others([this](std::size_t slot, const SharedHandle& arena) { arena_.attach(slot, arena); });
}

DeviceBoard::~DeviceBoard() {
  try {
    if (is_done()) detach();
    if (seats_.is_mapped_by_others() || !is_detached_) arena_.abandon();
  } catch (const std::exception&) {  // of the mutex: nobody can tell who has what
    arena_.abandon();
  }
}

bool DeviceBoard::close() {
  if (!std::exchange(has_left_, true)) leave();
  // After a failure nothing is said any more, but what was queued has to end.
  const bool ends = control_->failed.load() ? is_done() : advance();
  if (!ends) return false;
  detach();
  return !seats_.is_mapped_by_others();
}

/// Reads no more: buffers may become free by that.
void DeviceBoard::leave() {
  {
    const std::lock_guard lock(control_->mutex);
    control_->left |= self();
    for (std::size_t slot = 0; slot < ranks_.size(); ++slot) {
      for (DeviceBuffer& buffer : control_->seats[slot].buffers) {
        buffer.awaited &= ~self();
        free_if_read(buffer);
      }
    }
  }
  control_->events.ring();
}

void DeviceBoard::detach() {
  if (std::exchange(is_detached_, true)) return;
  for (std::size_t slot = 0; slot < ranks_.size(); ++slot) {
    if (slot != local_) arena_.detach(slot);
  }
  seats_.end_mapping();
  control_->events.ring();
}

/// At the end: whether nothing that this rank has queued is under way, also if a call failed before its event.
bool DeviceBoard::is_done() {
  if (has_polled_all()) return true;
  try {
    if (!std::exchange(is_marked_, true)) arena_.mark();
    return arena_.deposited() && arena_.folded() && arena_.given();
  } catch (const std::exception&) {  // a device that fails does nothing any more
    return true;
  }
}

LocalRanks DeviceBoard::gone() const {
  LocalRanks ranks = 0;
  for (std::size_t slot = 0; slot < ranks_.size(); ++slot) {
    if (seats_.is_gone(slot)) ranks |= LocalRanks{1} << slot;
  }
  return ranks;
}

// ------------------------------------------------------------------------------------------------ failures

template <class Action>
auto DeviceBoard::guarded(Action action) {
  throw_failure();
  try {
    return action();
  } catch (const std::exception& error) {
    note_failure(error.what());
    throw;
  }
}

void DeviceBoard::throw_failure() const {
  if (!control_->failed.load()) return;
  const std::lock_guard lock(control_->mutex);
  const Control::Failure& failure = control_->failure;
  throw std::runtime_error("rank " + std::to_string(ranks_[failure.local]) + ": " + failure.text.data());
}

void DeviceBoard::note_failure(const std::string& text) {
  {
    const std::lock_guard lock(control_->mutex);
    if (control_->failed.load()) return;
    control_->failure.local = static_cast<std::uint32_t>(local_);
    text.copy(control_->failure.text.data(), Control::kLongestText - 1);
    control_->failed.store(true);
  }
  control_->events.ring();
}

// ------------------------------------------------------------------------------------------------ contribute

template <class Condition>
std::optional<DeviceBoard::Place> DeviceBoard::find(std::size_t slot, BufferUse use, Condition condition) const {
  for (std::size_t buffer = 0; buffer < Control::kBuffers; ++buffer) {
    const DeviceBuffer& one = at({slot, buffer});
    if (one.use == use && condition(one)) return Place{slot, buffer};
  }
  return std::nullopt;
}

std::optional<DeviceBoard::Place> DeviceBoard::find(std::size_t slot, BufferUse use, std::uint64_t ticket) const {
  return find(slot, use, [&](const DeviceBuffer& one) { return one.ticket == ticket; });
}

std::optional<DeviceBoard::Place> DeviceBoard::find_of_any_rank(BufferUse use, std::uint64_t ticket) const {
  std::optional<Place> found;
  for (std::size_t slot = 0; slot < ranks_.size() && !found; ++slot) found = find(slot, use, ticket);
  return found;
}

/// What the round with that ticket may take.
std::optional<DeviceBoard::Place> DeviceBoard::find_waiting(std::size_t slot, std::uint64_t ticket) const {
  return find(slot, BufferUse::kWaiting,
              [&](const DeviceBuffer& one) { return one.ticket == kAnyRound || one.ticket == ticket; });
}

bool DeviceBoard::contribute(const std::byte* values, Stream& producer, Late late, std::uint64_t ticket) {
  return guarded([&] {
    const auto any = [](const DeviceBuffer&) { return true; };
    bool onto = false;
    std::optional<Place> place = filling_;
    {
      const std::lock_guard lock(control_->mutex);
      if (!place) place = find(local_, BufferUse::kWaiting, any);
      onto = place && late == Late::kAccumulate;
      if (!place) place = find(local_, BufferUse::kFree, any);
      if (!place) return false;
      at(*place).use = BufferUse::kFilling;
      at(*place).ticket = ticket;
    }
    filling_ = place;
    if (onto) {
      arena_.accumulate(place->buffer, values, producer);
    } else {
      arena_.deposit(place->buffer, values, producer);
    }
    return true;
  });
}

LocalRanks DeviceBoard::waiting() const {
  throw_failure();
  const std::lock_guard lock(control_->mutex);
  LocalRanks found = 0;
  for (std::size_t slot = 0; slot < ranks_.size(); ++slot) {
    if (find_waiting(slot, kAnyRound)) found |= LocalRanks{1} << slot;
  }
  return found;
}

std::uint64_t DeviceBoard::taken_by() const {
  throw_failure();
  const std::lock_guard lock(control_->mutex);
  return control_->seats[local_].taken_by;
}

// ------------------------------------------------------------------------------------------------ fold

bool DeviceBoard::fold(std::uint64_t ticket, LocalRanks ranks, LocalRanks readers, std::size_t parts) {
  return guarded([&] {
    std::optional<Part> part;
    {
      const std::lock_guard lock(control_->mutex);
      if (is_over(ticket)) return true;
      std::optional<Place> round = find_of_any_rank(BufferUse::kFolding, ticket);
      if (!round) round = begin(ticket, ranks, readers, parts);
      if (!round) return false;
      part = begin_part(*round);
    }
    if (part) {
      control_->events.ring();  // others may do another part
      folding_.push_back(part->round);
      arena_.fold(part->inputs, part->round, part->elements.first, part->elements.count);
    }
    return true;
  });
}

bool DeviceBoard::is_over(std::uint64_t ticket) const {
  if (find_of_any_rank(BufferUse::kResult, ticket)) return true;
  const bool is_superseded = keep_ == Keep::kLatest && ticket <= control_->newest;
  return is_superseded && !find_of_any_rank(BufferUse::kFolding, ticket);
}

/// Takes the contributions, and a buffer of this rank's for the result. Nothing if one of these is not there yet.
std::optional<DeviceBoard::Place> DeviceBoard::begin(std::uint64_t ticket, LocalRanks ranks, LocalRanks readers,
                                                     std::size_t parts) {
  bool all_wait = ranks != 0;
  for_each_rank(ranks, [&](std::size_t slot) { all_wait = all_wait && find_waiting(slot, ticket); });
  const std::optional<Place> into = find(local_, BufferUse::kFree, [](const DeviceBuffer&) { return true; });
  if (!all_wait || !into) return std::nullopt;
  for_each_rank(ranks, [&](std::size_t slot) {
    DeviceBuffer& taken = at(*find_waiting(slot, ticket));
    taken.use = BufferUse::kTaken;
    taken.ticket = ticket;
    control_->seats[slot].taken_by = ticket;
  });
  at(*into) = {.use = BufferUse::kFolding,
               .ticket = ticket,
               .contributors = ranks,
               .awaited = readers & ~control_->left,
               .reading = 0,
               .parts = static_cast<std::uint32_t>(parts),
               .parts_begun = 0,
               .parts_folded = 0};
  return into;
}

std::optional<DeviceBoard::Part> DeviceBoard::begin_part(const Place& round) const {
  DeviceBuffer& into = at(round);
  if (into.parts_begun == into.parts) return std::nullopt;
  Part part{round, aligned_part(arena_.shape().count, into.parts, into.parts_begun++), {}};
  for_each_rank(into.contributors,
                [&](std::size_t slot) { part.inputs.push_back(*find(slot, BufferUse::kTaken, into.ticket)); });
  return part;
}

void DeviceBoard::end_part(const Place& round) const {
  DeviceBuffer& into = at(round);
  if (++into.parts_folded < into.parts) return;
  for_each_rank(into.contributors,
                [&](std::size_t slot) { at(*find(slot, BufferUse::kTaken, into.ticket)).use = BufferUse::kFree; });
  into.use = BufferUse::kResult;
  control_->newest = std::max(control_->newest, into.ticket);
  if (keep_ == Keep::kLatest) supersede();
  free_if_read(into);
}

/// Nobody awaits results that are not the newest.
void DeviceBoard::supersede() const {
  for (std::size_t slot = 0; slot < ranks_.size(); ++slot) {
    for (DeviceBuffer& buffer : control_->seats[slot].buffers) {
      if (buffer.use != BufferUse::kResult || buffer.ticket == control_->newest) continue;
      buffer.awaited = 0;
      free_if_read(buffer);
    }
  }
}

void DeviceBoard::free_if_read(DeviceBuffer& buffer) const {
  const bool is_read = buffer.awaited == 0 && buffer.reading == 0;
  if (buffer.use == BufferUse::kResult && is_read) buffer.use = BufferUse::kFree;
}

// ------------------------------------------------------------------------------------------------ result

std::optional<DeviceBoard::Result> DeviceBoard::result(std::uint64_t ticket, std::byte* out, Stream& consumer) {
  throw_failure();
  Result result{};
  std::optional<Place> from;
  {
    const std::lock_guard lock(control_->mutex);
    const bool takes_newest = keep_ == Keep::kLatest && control_->newest >= ticket;
    from = find_of_any_rank(BufferUse::kResult, takes_newest ? control_->newest : ticket);
    if (!from) return std::nullopt;
    DeviceBuffer& buffer = at(*from);
    if (!contains(buffer.awaited, local_))  // a mistake of the caller: the others may go on
      throw InternalError("a device board: this rank is no reader of that result, or has read it");
    buffer.awaited &= ~self();
    buffer.reading |= self();
    result = {buffer.ticket, buffer.contributors};
  }
  return guarded([&] {
    giving_.push_back(*from);
    const bool is_average = arena_.shape().op == ReduceOp::kAvg;
    arena_.give(*from, out, is_average ? static_cast<std::size_t>(std::popcount(result.contributors)) : 1, consumer);
    return std::optional(result);
  });
}

bool DeviceBoard::advance() {
  return guarded([&] {
    const bool deposited = filling_ && arena_.deposited();
    const bool folded = !folding_.empty() && arena_.folded();
    const bool given = !giving_.empty() && arena_.given();
    if (deposited || folded || given) {
      {
        const std::lock_guard lock(control_->mutex);
        if (deposited) at(*std::exchange(filling_, std::nullopt)).use = BufferUse::kWaiting;
        if (folded) {
          for (const Place& round : std::exchange(folding_, {})) end_part(round);
        }
        if (given) {
          for (const Place& from : std::exchange(giving_, {})) {
            at(from).reading &= ~self();
            free_if_read(at(from));
          }
        }
      }
      control_->events.ring();
    }
    return has_polled_all();
  });
}

}  // namespace pyc
