#include "services/partial_reduce/partial_reduce.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>

#include "core/checked.h"
#include "core/error.h"
#include "engine/stall_warning.h"
#include "services/common/creation.h"
#include "services/common/node_memory.h"
#include "services/common/waiting.h"
#include "services/partial_reduce/generated_groups.h"
#include "services/partial_reduce/host_slots.h"
#include "services/partial_reduce/ruled_groups.h"
#include "services/partial_reduce/sleep_on_board.h"

namespace pyc {
namespace {

/// Of groups that send messages; 0: they work on the values where these are.
std::size_t piece_of(const GroupData& data, const PartialReduceOptions& options) {
  return options.on_device ? StagedRuns::piece_of(data, options.piece_bytes) : 0;
}

}  // namespace

std::shared_ptr<PartialReduce> PartialReduce::create(std::shared_ptr<Engine> engine, Memory& memory, Options options,
                                                     const Nodes& nodes, Seconds timeout,
                                                     const Engine::Interrupt& interrupt) {
  Engine& e = *engine;
  std::shared_ptr<PartialReduce> made(new PartialReduce(e, memory, std::move(options), nodes));
  if (nodes.count() < nodes.size()) {
    const std::size_t bytes = nodes.neighbours(e.rank()).size() * GroupBoard::bytes(made->slot_bytes());
    share_memory(
        e, nodes, bytes, "the memory of '" + made->name() + "'",
        [&](const std::shared_ptr<SharedMemory>& shared) { made->make_board(shared); }, timeout, interrupt);
  }
  return enrolled(std::move(engine), std::move(made));
}

std::shared_ptr<PartialReduce> PartialReduce::create_on_device(std::shared_ptr<Engine> engine, const OpenDevice& open,
                                                               Options options, const Nodes& nodes, Seconds timeout,
                                                               const Engine::Interrupt& interrupt) {
  Engine& e = *engine;
  options.on_device = true;
  std::shared_ptr<PartialReduce> made(new PartialReduce(e, host_memory(), std::move(options), nodes));
  PartialReduce& m = *made;
  const std::string what = "the memory of '" + m.name() + "'";
  const auto open_device = [&] {
    m.device_ = std::make_unique<GroupDevice>(open(), m.data_of(nullptr, 0), nodes.count() > 1, m.options_.piece_bytes);
  };
  if (nodes.count() == nodes.size()) {
    attempt_together(e, what, open_device, timeout, interrupt);
    return enrolled(std::move(engine), std::move(made));
  }
  const auto make = [&](const std::shared_ptr<SharedMemory>& shared) {
    open_device();
    m.make_board_on_device(shared);
  };
  share_memory(e, nodes, m.local_ranks() * GroupBoard::bytes(0) + ArenaSeats::bytes(m.local_ranks()), what, make,
               timeout, interrupt);
  map_together(e, what, *m.device_->slots(), timeout, interrupt);
  return enrolled(std::move(engine), std::move(made));
}

std::shared_ptr<PartialReduce> PartialReduce::enrolled(std::shared_ptr<Engine> engine,
                                                       std::shared_ptr<PartialReduce> made) {
  Engine& e = *engine;
  PartialReduce& m = *made;
  return enroll(std::move(engine), std::move(made), [&](std::uint32_t id) {
    m.id_ = id;
    if (m.options_.generator) {
      m.source_ = std::make_unique<GeneratedGroups>(e, id, *m.options_.generator, m.options_.server);
    } else {
      m.source_ = std::make_unique<RuledGroups>(e, id);
    }
    m.runs_ = std::make_unique<GroupRuns>(e, m.memory_, id);
    if (m.device_ && m.device_->staging() != nullptr) m.runs_->use(*m.device_->staging());
  });
}

void PartialReduce::check(Engine& engine, Memory& memory, const Options& options) {
  GroupData data{nullptr, options.count, options.type, options.op};
  if (options.by_staleness) data.weight = 1.0;
  GroupRuns(engine, memory, 0).check(options.algorithms, data, piece_of(data, options));
}

PartialReduce::PartialReduce(Engine& engine, Memory& memory, Options options, const Nodes& nodes)
    : engine_(&engine), memory_(memory), options_(std::move(options)), nodes_(nodes) {}

std::size_t PartialReduce::slot_bytes() const {
  const GroupData data = data_of(nullptr, 0);
  return std::min(data.length() * size_of(data.elements().accumulator), GroupBoard::kLongestSlot);
}

void PartialReduce::make_board(const std::shared_ptr<SharedMemory>& shared) {
  const std::size_t ranks = local_ranks();
  const auto memory_of = [&](std::size_t local) {
    return std::shared_ptr<std::byte>(shared, shared->data() + local * GroupBoard::bytes(slot_bytes()));
  };
  const std::size_t own = nodes_.local_rank_of(engine_->rank());
  auto slots = std::make_unique<HostSlots>(memory_, ranks, own, slot_bytes());
  board_ = std::make_unique<GroupBoard>(std::move(slots), ranks, own, memory_of(own));
  for (std::size_t local = 0; local < ranks; ++local) board_->attach(local, memory_of(local));
}

/// The shared memory has the heads of all ranks and, behind them, who has mapped whose slot.
void PartialReduce::make_board_on_device(const std::shared_ptr<SharedMemory>& shared) {
  const std::size_t ranks = local_ranks();
  const std::size_t own = nodes_.local_rank_of(engine_->rank());
  const auto head_of = [&](std::size_t local) {
    return std::shared_ptr<std::byte>(shared, shared->data() + local * GroupBoard::bytes(0));
  };
  const std::shared_ptr<std::byte> seats(shared, shared->data() + ranks * GroupBoard::bytes(0));
  const GroupData data = data_of(nullptr, 0);
  const std::size_t wanted =
      checked_product(std::max<std::size_t>(data.count, 1), size_of(data.elements().accumulator));
  auto slots = std::make_unique<DeviceSlots>(device_->executor(), ranks, own,
                                             std::min(wanted, DeviceSlots::kLongestSlot), seats);
  device_->use(*slots);
  board_ = std::make_unique<GroupBoard>(std::move(slots), ranks, own, head_of(own));
  for (std::size_t local = 0; local < ranks; ++local) board_->attach(local, head_of(local));
}

// ------------------------------------------------------------------------------------------------ the application

GroupInfo PartialReduce::sync(std::byte* values, std::int64_t step, const std::vector<Rank>& group, Seconds timeout,
                              const Engine::Interrupt& interrupt) {
  engine_->check();
  std::optional<InCall> in_call;
  std::optional<FlightRecorder::Waiting> waiting;
  engine_->exclusively([&] {
    if (closed_) throw ClosedError("'" + options_.name + "' is closed");
    throw_failure();
    if (failed_) throw ClosedError("'" + options_.name + "' is unusable: an earlier synchronisation was given up");
    in_call.emplace(in_call_);
    waiting.emplace(engine_->recorder(), id_, "a group for step " + std::to_string(step));
    failed_ = true;  // unless it ends well
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
  const auto sleep = [&](Seconds limit) { return sleep_on_board(*engine_, board, limit); };
  const auto wait = [&](Seconds limit) {
    return wait_while_alive(*engine_, done, limit, interrupt, [this] { check_alive(); }, sleep);
  };
  if (!wait_and_warn(*engine_, timeout, wait, [&] { return explain(interrupt) + "."; })) {
    const std::string text = explain(interrupt);
    if (!is_answered()) throw StallError(text + "; it is unusable now.");
  }
  return engine_->exclusively([this] {
    throw_failure();
    failed_ = false;
    return answer_;
  });
}

void PartialReduce::close(const std::byte* values) {
  engine_->check_process();
  const bool keeps = device_ && values != nullptr && engine_->exclusively([this] { return !closed_ && !failure_; });
  if (keeps) {
    try {
      on_device([&] { device_->keep(values); });
    } catch (const DeviceError&) {  // the others are told; this rank leaves without values
      engine_->exclusively([&] { do_close(nullptr); });
      throw;
    }
  }
  engine_->exclusively([&] { do_close(values); });
}

void PartialReduce::do_close(const std::byte* values) {
  if (closed_) return;
  closed_ = true;
  engine_->recorder().left(id_);
  if (asking_ || has_left_) return;  // given up: its engine goes on with the values that it was given, and leaves then
  if (values != nullptr && device_) {
    last_ = device_->kept();
  } else if (values != nullptr) {
    const std::size_t bytes = options_.count * size_of(options_.type);
    final_ = memory_.allocate(bytes);
    memory_.copy(final_.get(), values, bytes);
    last_ = final_.get();
  }
  announce_leaving();
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
  return board_ && std::all_of(turn.members.begin(), turn.members.end(),
                               [this](Rank r) { return nodes_.of(r) == nodes_.of(engine_->rank()); });
}

GroupRuns::Kind PartialReduce::kind_of(const Turn& turn) const {
  const GroupData data = data_of(values_, turn.newest_step);
  const std::string& algorithm = options_.algorithms[turn.members.size()];
  return runs_->kind_of(turn.members, data, algorithm, piece_of(data, options_));
}

/// Else its plan is to be built first, by the call that waits for it and without the progress lock. If the application
/// is in no call, nobody else can: then `begin` builds it.
bool PartialReduce::can_begin(const Turn& turn) {
  if (!in_call_ || turn.members.size() == 1 || meets_on_board(turn)) return true;
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
  if (in_call_) {
    engine_->recorder().waits_for(id_, "group " + std::to_string(turn.sequence) + " of " + list_ranks(turn.members));
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
  return device_->finish(*runs_) && (failure_ || !runs_->failed());  // else the message on that is still to come
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
  if (closed_ || failure_) announce_leaving();
  answered_.store(true, std::memory_order_release);
}

// ------------------------------------------------------------------------------------------------ devices that fail

void PartialReduce::on_message(Rank from, ConstBytes message) {
  source_->deliver(from, message);
  if (device_ && source_->failure()) fail(*source_->failure());
}

void PartialReduce::check_failure() {
  engine_->check();
  engine_->exclusively([this] { throw_failure(); });
}

bool PartialReduce::has_failed() {
  return engine_->exclusively([this] { return failure_.has_value(); });
}

void PartialReduce::throw_failure() const {
  if (failure_) throw std::runtime_error(*failure_);
}

/// Of this rank's device.
void PartialReduce::report(const DeviceError& error) {
  check_alive();  // a rank that dies may take its memory with it
  if (!failure_ && !has_performed_all()) source_->report_failure(error.what());
  device_->give_up();
  fail(error.what());
}

/// This rank leaves. If it is in a group, or has asked for one, it does when that is over.
void PartialReduce::fail(const std::string& text) {
  if (failure_) return;
  failure_ = text;
  last_ = nullptr;
  if (!performing_) end_call();
  if (!asking_ && !has_left_) announce_leaving();
}

/// By an error, though its request may still be open. The groups that answer it have no values of this rank.
void PartialReduce::end_call() {
  values_ = nullptr;
  answered_.store(true, std::memory_order_release);
}

// ------------------------------------------------------------------------------------------------ stalls

/// RankFailedError if a rank of this node is gone: its engine is needed until all have left.
void PartialReduce::check_alive() const {
  if (!board_) return;
  std::vector<Rank> gone;
  for (const std::size_t local : board_->gone()) gone.push_back(nodes_.neighbours(engine_->rank())[local]);
  const std::vector<Rank> dead = engine_->failures().dead_if_gone(std::move(gone));
  if (!dead.empty()) throw died("'" + options_.name + "'", dead, "it is unusable now");
}

std::string PartialReduce::what() const {
  if (!performing_) return "the request of step " + std::to_string(step_) + " is not answered";
  return "group " + std::to_string(info_.sequence) + ", of " + list_ranks(info_.group) + ", is not complete";
}

/// Asks the source, and says what is known of the request that is not answered.
std::string PartialReduce::explain(const Engine::Interrupt& interrupt) {
  const std::string text = engine_->exclusively([this] {
    source_->inquire();
    return "partial reduce '" + options_.name + "': " + what() + " after " +
           in_seconds(engine_->transport().now() - asked_) + "; ";
  });
  const auto explanation = [this] { return engine_->exclusively([this] { return source_->explanation(); }); };
  engine_->wait([&] { return is_answered() || explanation().has_value(); }, kAnswerTime, interrupt);
  return text + explanation().value_or(source_->silence());
}

}  // namespace pyc
