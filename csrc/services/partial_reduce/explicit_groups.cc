#include "services/partial_reduce/explicit_groups.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/error.h"
#include "engine/stall_warning.h"
#include "services/common/stall.h"
#include "services/common/waiting.h"
#include "services/partial_reduce/sleep_on_board.h"

namespace pyc {

std::shared_ptr<ExplicitGroups> ExplicitGroups::join(std::shared_ptr<Engine> engine, Memory& memory,
                                                     const Nodes& nodes) {
  Engine& e = *engine;
  std::shared_ptr<ExplicitGroups> made(new ExplicitGroups(e, memory, nodes));
  e.exclusively([&] {
    e.check_can_start();
    e.enroll(kUncreated, made);
  });
  e.wake();
  return with_engine(std::move(engine), std::move(made));
}

ExplicitGroups::ExplicitGroups(Engine& engine, Memory& memory, const Nodes& nodes)
    : engine_(&engine),
      mailbox_(engine, kUncreated),
      handshake_(engine, mailbox_),
      runs_(engine, memory, kUncreated),
      on_node_(engine.rank(), memory, nodes),
      reports_(static_cast<std::size_t>(engine.size())),
      called_(engine.transport().now()) {}

void ExplicitGroups::refuse_call(const std::vector<Rank>& members, const std::string& reason) {
  engine_->exclusively([&] {
    check_usable();
    handshake_.refuse(members, reason);
  });
}

void ExplicitGroups::reduce_on_device(const std::shared_ptr<Executor>& device, const Wanted& wanted, Seconds timeout,
                                      const Engine::Interrupt& interrupt) {
  engine_->check();
  const Seconds begin = engine_->transport().now();
  on_device(wanted.members, [&] { make_room(device, wanted.data); });
  const Seconds rest = timeout < 0 ? timeout : std::max(timeout - (engine_->transport().now() - begin), 0.0);
  reduce(wanted, rest, interrupt);
}

/// Without the progress lock, because a driver may take long to allocate.
void ExplicitGroups::make_room(const std::shared_ptr<Executor>& device, const GroupData& data) {
  StagedRuns::Room room = StagedRuns::room_for(data);
  std::shared_ptr<Executor> former;
  std::unique_ptr<StagedRuns> too_small;  // destroyed first
  const auto has_room = [&] {
    check_usable();
    if (device_ == device) room.grow(staged_->room());
    if (device_ == device && room == staged_->room()) return true;
    std::swap(device_, former);
    std::swap(staged_, too_small);
    return false;
  };
  if (engine_->exclusively(has_room)) return;
  too_small.reset();  // frees memory before the larger allocation
  auto made = std::make_unique<StagedRuns>(*device, room, kPieceBytes);
  engine_->exclusively([&] {
    runs_.use(made->staging());
    staged_ = std::move(made);
    device_ = device;
  });
}

void ExplicitGroups::check_usable() const {
  if (closed_) throw ClosedError("preduce: the communicator is closed");
  if (!failed_) return;
  throw ClosedError("preduce is unusable on this communicator: an earlier P-Reduce, of " + list_ranks(members_) +
                    ", was given up");
}

void ExplicitGroups::reduce(const Wanted& wanted, Seconds timeout, const Engine::Interrupt& interrupt) {
  engine_->check();
  const InCall in_call(in_call_);
  engine_->exclusively([this] { check_usable(); });
  const std::size_t piece = wanted.on_device ? StagedRuns::piece_of(wanted.data, kPieceBytes) : 0;
  if (wanted.algorithm != "board") {
    build_plan(runs_.kind_of(wanted.members, wanted.data, wanted.algorithm, piece));
  }
  engine_->exclusively([&] { come(wanted, piece); });
  const FlightRecorder::Waiting waiting(engine_->recorder(), kUncreated, "P-Reduce of " + list_ranks(wanted.members));
  try {
    wait(timeout, interrupt);
  } catch (...) {
    engine_->exclusively([this] { must_withdraw_ = true; });
    throw;
  }
  engine_->exclusively([this] {
    if (error_) std::rethrow_exception(error_);
    failed_ = false;
  });
}

void ExplicitGroups::build_plan(const GroupRuns::Kind& kind) {
  if (engine_->exclusively([&] { return runs_.has(kind); })) return;
  GroupRuns::Plan plan = runs_.build(kind);
  engine_->exclusively([&] { runs_.keep(std::move(plan)); });
}

/// Makes all checks and allocations before the first message to other members.
void ExplicitGroups::come(const Wanted& wanted, std::size_t piece) {
  check_usable();
  on_board_ = wanted.algorithm == "board";
  on_device_ = wanted.on_device;
  if (on_board_) {
    on_node_.prepare();
  } else {
    runs_.prepare(wanted.members, wanted.data, wanted.algorithm, piece);
  }
  members_ = wanted.members;
  data_ = wanted.data;
  algorithm_ = wanted.algorithm;
  called_ = engine_->transport().now();
  error_ = nullptr;
  failed_ = true;  // until it ends without an error
  done_ = false;
  stage_ = Stage::kHandshake;
  refused_at_.reset();
  handshake_.come(wanted, on_board_ ? on_node_.last_ticket() : 0, on_board_ ? on_node_.handle() : std::string());
  for (const Rank rank : std::exchange(asked_early_, {})) answer(rank);
}

void ExplicitGroups::wait(Seconds timeout, const Engine::Interrupt& interrupt) {
  const Seconds start = engine_->transport().now();
  const auto done = [this] { return is_done(); };
  const auto board = [this] { return stage_ == Stage::kBegun && on_board_ ? on_node_.board() : nullptr; };
  const auto sleep = [&](Seconds limit) { return sleep_on_board(*engine_, board, limit); };
  const auto wait_for = [&](Seconds limit) {
    return wait_while_alive(*engine_, done, limit, interrupt, [this] { check_alive(); }, sleep);
  };
  const auto why_not = [&] { return explain(engine_->transport().now() - start, interrupt); };
  if (wait_and_warn(*engine_, timeout, wait_for, why_not)) return;
  const std::string text = why_not();
  if (!is_done()) throw StallError(text + " preduce is unusable on this communicator now.");
}

bool ExplicitGroups::uses(const std::byte* values) {
  return engine_->exclusively([&] { return is_under_way() && data_.values == values; });
}

/// If a P-Reduce is under way, its device memory is kept until this object is destroyed.
void ExplicitGroups::close() {
  std::shared_ptr<Executor> device;
  std::unique_ptr<StagedRuns> staged;  // destroyed first, without the lock
  engine_->exclusively([&] {
    closed_ = true;
    if (is_under_way()) return;
    std::swap(device, device_);
    std::swap(staged, staged_);
  });
}

// ------------------------------------------------------------------------------------------------ a P-Reduce

bool ExplicitGroups::advance() {
  if (must_withdraw_) {
    must_withdraw_ = false;
    handshake_.withdraw(Handshake::Reason::kGaveUp);
  }
  if (!is_under_way()) return false;
  if (const std::exception_ptr refusal = handshake_.take_refusal()) {
    error_ = refusal;
    failed_ = false;  // nothing was begun
    end();
  } else if (const std::exception_ptr mismatch = handshake_.mismatch()) {
    fail(mismatch, Handshake::Reason::kMismatch);
  } else if (const std::exception_ptr obstacle = handshake_.obstacle()) {
    fail(learn_failure() ? error_ : obstacle, Handshake::Reason::kGaveUp);
  } else if (stage_ == Stage::kHandshake) {
    return handshake_.complete() && begin();
  } else {
    const bool moved = on_board_ && on_node_.advance();
    if (!has_performed()) return moved || (on_device_ && staged_->take_moved());
    if (error_) handshake_.withdraw(Handshake::Reason::kGaveUp);
    end();
  }
  return true;
}

/// Called when all members have arrived. False if it must be called again.
bool ExplicitGroups::begin() {
  if (!on_board_) {
    handshake_.begin();
    stage_ = Stage::kBegun;
    if (on_device_) {
      begin_on_device();
    } else {
      runs_.start(handshake_.number());
    }
    return true;
  }
  std::uint64_t ticket = 0;
  for (const Rank r : members_) ticket = std::max(ticket, handshake_.ticket_of(r));
  try {
    attach_all();
  } catch (const std::runtime_error& error) {
    const std::vector<Rank> dead = engine_->failures().dead_neighbours();  // their memory cannot be opened
    if (!dead.empty()) {
      fail(std::make_exception_ptr(failure_of(dead)), Handshake::Reason::kGaveUp);
      return true;
    }
    // A process that ends closes its memory before it counts as dead.
    const Seconds now = engine_->transport().now();
    if (!refused_at_) refused_at_ = now;
    if (now < *refused_at_ + kAnswerTime) return false;
    const std::string text = "preduce: the P-Reduce of " + list_ranks(members_) +
                             " cannot be performed: " + error.what() + "; preduce is unusable on this communicator now";
    fail(std::make_exception_ptr(std::runtime_error(text)), Handshake::Reason::kMemory);
    return true;
  }
  handshake_.begin();
  stage_ = Stage::kBegun;
  on_node_.start(members_, ticket + 1, data_);
  return true;
}

void ExplicitGroups::attach_all() {
  for (const Rank r : members_) {
    if (r != engine_->rank()) on_node_.attach(r, handshake_.handle_of(r));
  }
}

bool ExplicitGroups::has_performed() {
  if (on_device_) return has_performed_on_device();
  return on_board_ ? on_node_.ended() : runs_.finish();
}

void ExplicitGroups::end() {
  stage_ = Stage::kEnded;
  called_ = engine_->transport().now();
  done_.store(true, std::memory_order_release);
}

void ExplicitGroups::fail(std::exception_ptr error, Handshake::Reason reason) {
  error_ = std::move(error);
  handshake_.withdraw(reason);
  end();
}

// ------------------------------------------------------------------------------------------------ on a device

void ExplicitGroups::refuse(const std::vector<Rank>& members, const std::string& text) {
  if (closed_ || failed_) return;
  members_ = members;
  failed_ = true;
  FailureReports::send(mailbox_, members, engine_->rank(), text);
  handshake_.withdraw(Handshake::Reason::kGaveUp);
}

void ExplicitGroups::begin_on_device() {
  try {
    staged_->start(runs_, members_, data_, algorithm_, handshake_.number());
  } catch (const DeviceError& error) {
    lose_device(error);
  }
}

bool ExplicitGroups::has_performed_on_device() {
  try {
    if (!staged_->finish(runs_)) return false;
  } catch (const DeviceError& error) {
    lose_device(error);
    return false;
  }
  const bool is_whole = !runs_.failed() && (data_.count == 0 || runs_.contributors() == members_.size());
  return is_whole || learn_failure();
}

/// Called in a handler of the error. The P-Reduce continues without this rank's data, so every message is received.
void ExplicitGroups::lose_device(const DeviceError& error) {
  error_ = std::current_exception();
  staged_->give_up_device();
  FailureReports::send(mailbox_, members_, engine_->rank(), error.what());
}

/// Sets `error_` if a member has reported a device failure. Returns whether there is an error.
bool ExplicitGroups::learn_failure() {
  for (const Rank rank : members_) {
    if (error_) break;
    if (const std::optional<std::string> failure = failures_.of(rank)) {
      error_ = std::make_exception_ptr(std::runtime_error(*failure + "; preduce is unusable on this communicator now"));
    }
  }
  return error_ != nullptr;
}

/// This rank until it closes; then the members that its P-Reduce waits for.
std::vector<Rank> ExplicitGroups::not_closed() const {
  if (!closed_) return {engine_->rank()};
  std::vector<Rank> awaited;
  for (const Rank r : members_) {
    if (r != engine_->rank() && (stage_ != Stage::kHandshake || !handshake_.has_come(r))) awaited.push_back(r);
  }
  return awaited;
}

// ------------------------------------------------------------------------------------------------ stalls

RankFailedError ExplicitGroups::failure_of(const std::vector<Rank>& dead) {
  return died("preduce", dead, "it is unusable on this communicator now");
}

/// Throws RankFailedError if a rank of this node that this rank has met has died.
void ExplicitGroups::check_alive() {
  std::vector<Rank> gone = engine_->exclusively([this] { return on_node_.gone(); });
  const std::vector<Rank> dead = engine_->failures().dead_if_gone(std::move(gone));
  if (!dead.empty()) throw failure_of(dead);
}

std::string ExplicitGroups::explain(Seconds waited, const Engine::Interrupt& interrupt) {
  const std::vector<Rank> members = engine_->exclusively([this] {
    for (const Rank rank : members_) {
      reports_[static_cast<std::size_t>(rank)] = {};
      mailbox_.send(rank, Inquiry{});
    }
    return members_;
  });
  // If all have arrived, no rank is missing; the P-Reduce may end within the rest of the time.
  const auto is_known = [&] {
    const std::vector<Report> all = engine_->exclusively([this] { return reports(); });
    bool have_come = true;
    for (const Report& report : all) {
      if (report.state == RankState::kSilent) return false;
      have_come = have_come && (report.state == RankState::kArrived || report.state == RankState::kComplete);
    }
    return !have_come;
  };
  engine_->wait([&] { return is_done() || is_known(); }, kAnswerTime, interrupt);
  return text_of_stall({.what = "P-Reduce of " + list_ranks(members),
                        .round = kNoRound,
                        .waited = waited,
                        .flush = false,
                        .reports = engine_->exclusively([this] { return reports(); }),
                        .gave_up = engine_->gave_up(),
                        .name_of = [this](std::uint32_t id) { return engine_->name_of(id); },
                        .why_silent = "they have never called preduce, or are stopped or gone",
                        .if_all_arrived = "every member has come: it is slow"});
}

std::vector<Report> ExplicitGroups::reports() {
  std::vector<Report> all(reports_.size(), Report{RankState::kComplete});
  for (const Rank rank : members_) {
    Report& report = all[static_cast<std::size_t>(rank)];
    report = reports_[static_cast<std::size_t>(rank)];
    if (report.state != RankState::kSilent && handshake_.has_come(rank)) report = {RankState::kArrived};
  }
  return all;
}

/// For a P-Reduce that this rank has not entered.
Report ExplicitGroups::own_state() const {
  if (in_call_) return {RankState::kElsewhere, kUncreated};
  return report_of_absent(*engine_, *this, engine_->rank(), called_);
}

void ExplicitGroups::answer(Rank rank) { mailbox_.send(rank, Answer{own_state()}); }

void ExplicitGroups::on_message(Rank from, ConstBytes bytes) {
  const auto receive = Handlers{
      [this](Rank rank, const Arrival& arrival, std::span<const char> handle) {
        handshake_.arrived(rank, arrival, handle);
      },
      [this](Rank rank, const RefusedCall&, std::span<const char> piece) { handshake_.refused(rank, piece); },
      [this](Rank rank, const Withdrawal& withdrawal) { handshake_.withdrawn(rank, withdrawal); },
      [this](Rank rank, const Inquiry&) {
        // This rank's first call is about to begin, and will answer.
        if (members_.empty()) return asked_early_.push_back(rank);
        answer(rank);
      },
      [this](Rank rank, const Answer& answer) { reports_[static_cast<std::size_t>(rank)] = answer.report; },
      [this](Rank rank, const DeviceFailed&, std::span<const char> text) { failures_.take(rank, text); },
  };
  PreduceMailbox::deliver(from, bytes, receive);
}

}  // namespace pyc
