#include "services/partial_reduce/partial_reduce.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>

#include "core/checked.h"
#include "core/error.h"
#include "services/partial_reduce/generated_groups.h"
#include "services/partial_reduce/host_slots.h"
#include "services/partial_reduce/ruled_groups.h"
#include "services/partial_reduce/sleep_on_board.h"

namespace pyc {
namespace {

/// For groups that send messages; 0 if these use the values in place.
std::size_t piece_of(const GroupData& data, const PartialReduceOptions& options) {
  return options.on_device ? StagedRuns::piece_of(data, options.piece_bytes) : 0;
}

}  // namespace

std::shared_ptr<PartialReduce> PartialReduce::create(std::shared_ptr<Engine> engine, Memory& memory, Options options,
                                                     const Nodes& nodes, Seconds timeout,
                                                     const Engine::Interrupt& interrupt,
                                                     const OpenDevice& open_device) {
  Engine& e = *engine;
  options.on_device = open_device != nullptr;
  std::shared_ptr<PartialReduce> made(new PartialReduce(e, memory, std::move(options), nodes));
  PartialReduce& m = *made;
  const bool has_board = nodes.count() < nodes.size();
  const auto make = [&](const std::shared_ptr<std::byte>& shared) {
    if (open_device) {
      m.device_ = std::make_unique<GroupDevice>(open_device(), m.data_of(nullptr, 0), nodes.count() > 1,
                                                m.options_.piece_bytes);
    }
    if (has_board) m.make_board(shared);
  };
  const auto complete = [&] {
    if (open_device && has_board) map_together(e, m.what_is_made(), *m.device_->slots(), timeout, interrupt);
  };
  const OnNode on_node{.bytes = has_board ? m.board_bytes() : 0, .make = make, .complete = complete};
  return created(std::move(engine), std::move(made), on_node, timeout, interrupt);
}

void PartialReduce::open() {
  if (options_.generator) {
    source_ = std::make_unique<GeneratedGroups>(*engine_, id(), *options_.generator, options_.server);
  } else {
    source_ = std::make_unique<RuledGroups>(*engine_, id());
  }
  runs_ = std::make_unique<GroupRuns>(*engine_, memory_, id());
  if (device_ && device_->staging() != nullptr) runs_->use(*device_->staging());
}

void PartialReduce::check(Engine& engine, Memory& memory, const Options& options) {
  GroupData data{nullptr, options.count, options.type, options.op};
  if (options.by_staleness) data.weight = 1.0;
  GroupRuns(engine, memory, 0).check(options.algorithms, data, piece_of(data, options));
}

PartialReduce::PartialReduce(Engine& engine, Memory& memory, Options options, const Nodes& nodes)
    : Service(engine, nodes, "partial reduce", options.name), memory_(memory), options_(std::move(options)) {}

/// Of a rank: a head, with its slot if that is on the host.
std::size_t PartialReduce::head_bytes() const { return GroupBoard::bytes(options_.on_device ? 0 : slot_bytes()); }

std::size_t PartialReduce::board_bytes() const {
  return local_ranks() * head_bytes() + (options_.on_device ? ArenaSeats::bytes(local_ranks()) : 0);
}

std::size_t PartialReduce::slot_bytes() const {
  const GroupData data = data_of(nullptr, 0);
  const std::size_t width = size_of(data.elements().accumulator);
  if (!options_.on_device) return std::min(data.length() * width, GroupBoard::kLongestSlot);
  return std::min(checked_product(std::max<std::size_t>(data.count, 1), width), DeviceSlots::kLongestSlot);
}

/// The shared memory has the heads of all ranks, then their ArenaSeats.
void PartialReduce::make_board(const std::shared_ptr<std::byte>& shared) {
  const std::size_t ranks = local_ranks();
  const std::size_t own = nodes_.local_rank_of(rank());
  const auto head_of = [&](std::size_t local) {
    return std::shared_ptr<std::byte>(shared, shared.get() + local * head_bytes());
  };
  std::unique_ptr<GroupSlots> slots;
  if (device_) {
    auto on_device = std::make_unique<DeviceSlots>(device_->executor(), ranks, own, slot_bytes(), head_of(ranks));
    device_->use(*on_device);
    slots = std::move(on_device);
  } else {
    slots = std::make_unique<HostSlots>(memory_, ranks, own, slot_bytes());
  }
  board_ = std::make_unique<GroupBoard>(std::move(slots), ranks, own, head_of(own));
  for (std::size_t local = 0; local < ranks; ++local) board_->attach(local, head_of(local));
}

// ------------------------------------------------------------------------------------------------ the application

GroupInfo PartialReduce::average(std::byte* values, std::int64_t step, const std::vector<Rank>& group, Seconds timeout,
                                 const Engine::Interrupt& interrupt) {
  check_open();
  const InCall in_call = enter_call();
  engine_->exclusively([&] {
    check_open();  // another thread may have closed it
    throw_failure();
    throw_given_up();
    values_ = values;
    step_ = step;
    asked_ = engine_->transport().now();
    answered_ = false;
    asking_ = true;
    source_->request(step, group);
  });
  const auto done = [this] {
    if (needs_plan_.exchange(false)) build_plan();
    return is_answered();
  };
  const auto board = [this] { return performing_ && on_board_ ? board_.get() : nullptr; };
  try {
    wait_for({.what = "a group for step " + std::to_string(step),
              .done = done,
              .awaited = [] { return std::vector<Awaited>(); },
              .sleep = [&](Seconds limit) { return sleep_on_board(*engine_, board, limit); },
              .explain = [&](Seconds) { return explain(interrupt) + "."; },
              .unusable_after = true},
             timeout, interrupt);
  } catch (...) {
    engine_->exclusively([this] { given_up_ = true; });
    throw;
  }
  return engine_->exclusively([this] {
    throw_failure();
    ++averages_;
    return answer_;
  });
}

void PartialReduce::close_with(const std::byte* values) {
  engine_->check_process();
  const bool keeps = device_ && values != nullptr && engine_->exclusively([this] { return !closed() && !failure_; });
  if (keeps) {
    try {
      on_device([&] { device_->keep(values); });
    } catch (const DeviceError&) {  // the other ranks know; this rank leaves without values
      close();
      throw;
    }
  }
  engine_->exclusively([&] { keep(values); });
  close();
}

/// Keeps values for groups after this rank has left.
void PartialReduce::keep(const std::byte* values) {
  if (closed() || asking_ || has_left_ || values == nullptr) return;
  if (device_) {
    last_ = device_->kept();
    return;
  }
  const std::size_t bytes = options_.count * size_of(options_.type);
  final_ = memory_.allocate(bytes);
  memory_.copy(final_.get(), values, bytes);
  last_ = final_.get();
}

/// If a call was given up, the engine first completes its request with its values.
void PartialReduce::tell_closed() {
  if (!asking_ && !has_left_) announce_leaving();
}

void PartialReduce::announce_leaving() {
  values_ = last_;
  has_left_ = true;
  source_->leave();
}

bool PartialReduce::uses(const std::byte* values) {
  return engine_->exclusively([&] { return asking_ && values_ == values; });
}

// ------------------------------------------------------------------------------------------------ its groups

bool PartialReduce::advance() {
  if (!device_) return perform();
  try {
    const bool moved = perform();
    if (has_performed_all() && !device_->is_released()) device_->release();
    return moved;
  } catch (const DeviceError& error) {
    report(error);
    return true;
  }
}

bool PartialReduce::perform() {
  bool moved = false;
  for (;;) {
    if (performing_) {
      moved = (on_board_ && !failure_ && board_->advance()) || moved;
      if (!has_ended()) return (device_ && device_->take_moved()) || moved;
      conclude();
    } else {
      const Turn* const turn = asking_ || has_left_ ? source_->next() : nullptr;
      if (turn == nullptr || !can_begin(*turn)) return moved;
      begin(*turn);
    }
    moved = true;
  }
}

bool PartialReduce::meets_on_board(const Turn& turn) const {
  return board_ && std::all_of(turn.members.begin(), turn.members.end(), [this](Rank r) { return is_local(r); });
}

GroupRuns::Kind PartialReduce::kind_of(const Turn& turn) const {
  const GroupData data = data_of(values_, turn.newest_step);
  const std::string& algorithm = options_.algorithms[turn.members.size()];
  return runs_->kind_of(turn.members, data, algorithm, piece_of(data, options_));
}

/// If not, the waiting call builds the plan, without the progress lock. If the application is in no call, `begin` does.
bool PartialReduce::can_begin(const Turn& turn) {
  if (!has_waiting(rank()) || turn.members.size() == 1 || meets_on_board(turn)) return true;
  if (runs_->has(kind_of(turn))) return true;
  needs_plan_ = true;
  return false;
}

void PartialReduce::build_plan() {
  std::optional<GroupRuns::Kind> kind;
  engine_->exclusively([&] {
    const Turn* const turn = performing_ ? nullptr : source_->next();
    if (turn != nullptr) kind = kind_of(*turn);
  });
  if (!kind) return;
  GroupRuns::Plan plan = runs_->build(*kind);
  engine_->exclusively([&] { runs_->keep(std::move(plan)); });
  engine_->advance();
}

void PartialReduce::begin(const Turn& turn) {
  performing_ = true;
  if (has_waiting(rank())) {
    engine_->recorder().waits_for(id(), "group " + std::to_string(turn.sequence) + " of " + list_ranks(turn.members));
  }
  info_ = {turn.members, turn.sequence, engine_->transport().now() - asked_, turn.conflicts};
  on_board_ = false;
  if (turn.members.size() == 1) return;
  const GroupData data = data_of(values_, turn.newest_step);
  on_board_ = meets_on_board(turn);
  if (on_board_) {
    if (!failure_) board_->start(nodes_.local_ranks_of(turn.members), turn.sequence + 1, data);
    return;
  }
  const std::string& algorithm = options_.algorithms[turn.members.size()];
  if (device_) return device_->start(*runs_, info_.group, data, algorithm, turn.sequence);
  runs_->prepare(info_.group, data, algorithm);
  runs_->start(turn.sequence);
}

bool PartialReduce::has_ended() {
  if (info_.group.size() == 1) return true;
  if (on_board_) return failure_ ? device_->has_stopped() : board_->ended();
  if (!device_) return runs_->finish();
  return device_->finish(*runs_) && (failure_ || !runs_->failed());  // if failed, the report of the failure follows
}

GroupData PartialReduce::data_of(std::byte* values, std::int64_t newest_step) const {
  GroupData data{values, options_.count, options_.type, options_.op};
  const auto behind = static_cast<double>(std::max<std::int64_t>(newest_step - step_, 0));
  if (options_.by_staleness) data.weight = 1.0 / (1.0 + behind);
  return data;
}

void PartialReduce::conclude() {
  performing_ = false;
  const bool answers = source_->next()->answers;
  source_->performed();
  if (failure_) end_call();
  if (!answers || !asking_) return;
  asking_ = false;
  answer_ = info_;
  if (closed() || failure_) announce_leaving();
  answered_.store(true, std::memory_order_release);
}

// ------------------------------------------------------------------------------------------------ devices that fail

void PartialReduce::receive(Rank from, ConstBytes message) {
  source_->deliver(from, message);
  if (device_ && source_->failure()) fail(*source_->failure());
}

void PartialReduce::check_failure() {
  engine_->check();
  engine_->exclusively([this] { throw_failure(); });
}

void PartialReduce::check_usable() {
  Service::check_usable();
  engine_->exclusively([this] {
    throw_failure();
    throw_given_up();
  });
}

void PartialReduce::throw_given_up() const {
  if (!given_up_) return;
  throw ClosedError("'" + name() + "' is unusable: an earlier average was given up; abort() it on all ranks");
}

bool PartialReduce::has_failed() {
  return engine_->exclusively([this] { return failure_.has_value(); });
}

void PartialReduce::throw_failure() const {
  if (failure_) throw std::runtime_error(*failure_);
}

/// Handles an error of this rank's device.
void PartialReduce::report(const DeviceError& error) {
  check_alive();  // throws if a rank has died, because its memory may be gone
  if (!failure_ && !has_performed_all()) source_->report_failure(error.what());
  device_->give_up();
  fail(error.what());
}

/// This rank leaves, after its current or requested group.
void PartialReduce::fail(const std::string& text) {
  if (failure_) return;
  failure_ = text;
  last_ = nullptr;
  if (!performing_) end_call();
  if (!asking_ && !has_left_) announce_leaving();
}

/// Ends the call by an error. Its request may still be open; groups that answer it get no values of this rank.
void PartialReduce::end_call() {
  values_ = nullptr;
  answered_.store(true, std::memory_order_release);
}

// ------------------------------------------------------------------------------------------------ stalls

std::string PartialReduce::what() const {
  if (!performing_) return "the request of step " + std::to_string(step_) + " is not answered";
  return "group " + std::to_string(info_.sequence) + ", of " + list_ranks(info_.group) + ", is not complete";
}

std::string PartialReduce::explain(const Engine::Interrupt& interrupt) {
  const std::string text = engine_->exclusively([this] {
    source_->inquire();
    return "partial reduce '" + name() + "': " + what() + " after " + in_seconds(engine_->transport().now() - asked_) +
           "; ";
  });
  const auto explanation = [this] { return engine_->exclusively([this] { return source_->explanation(); }); };
  engine_->wait([&] { return is_answered() || explanation().has_value(); }, kAnswerTime, interrupt);
  return text + explanation().value_or(source_->silence());
}

}  // namespace pyc
