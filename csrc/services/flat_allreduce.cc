#include "services/flat_allreduce.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <stdexcept>
#include <thread>

#include "algorithms/activation.h"
#include "algorithms/registry.h"
#include "core/error.h"

namespace pyc {
namespace {

PartialAllreduceOptions normalized(PartialAllreduceOptions options) {
  // Synchronous means that every rank is waited for in every round.
  if (options.policy.kind == Policy::Kind::kFull) options.max_staleness = 0;
  return options;
}

}  // namespace

PartialAllreducePlan plan_partial_allreduce(const std::string& activation, const std::string& algorithm, Rank rank,
                                            Rank size, std::size_t count) {
  ScheduleBuilder s(rank, size);
  const Slice data = s.buffer(count, "data");
  const Activation activated = activate(activation, s);
  const OpId active = s.signal("activated", std::span(&activated.active, 1));
  const OpId release = s.trigger("release");
  const OpId both[] = {activated.active, release};
  const OpId taken = s.join("taken", both);
  s.gate(taken);
  find_allreduce(algorithm).build(s, {data, data});
  s.ungate();
  // Also behind receives that do not lead to the result, if an algorithm has any: the next round posts the same ones,
  // and a transport takes one message with payload at a time from a peer and tag.
  std::vector<OpId> last = s.receives_after(taken);
  for (const OpId writer : s.writers(data)) {
    if (std::find(last.begin(), last.end(), writer) == last.end()) last.push_back(writer);
  }
  last.push_back(taken);
  const OpId result = s.signal("result", last);
  return {std::move(s).build(), data, activated.start, active, release, result, activated.root};
}

// ------------------------------------------------------------------------------------------------ construction

std::shared_ptr<FlatAllreduce> FlatAllreduce::create(std::shared_ptr<Engine> engine, Memory& memory, Options options) {
  Engine& e = *engine;
  // No elements still make a round: the plan then has one element of no bytes.
  options = normalized(std::move(options));
  PartialAllreducePlan plan = plan_partial_allreduce(options.activation, options.algorithm, e.rank(), e.size(),
                                                     std::max<std::size_t>(options.count, 1));
  const auto made = e.exclusively([&] {
    const std::uint32_t id = e.claim_place();
    std::shared_ptr<FlatAllreduce> collective(new FlatAllreduce(e, memory, std::move(options), std::move(plan), id));
    const auto last_tag = static_cast<std::uint64_t>(collective->plan_.schedule.channels() + 1) * kTagStride;
    if (last_tag > static_cast<std::uint64_t>(e.transport().max_tag())) {
      throw std::invalid_argument("algorithm '" + collective->options_.algorithm + "' at " + std::to_string(e.size()) +
                                  " ranks needs tags up to " + std::to_string(last_tag) + ", this MPI allows " +
                                  std::to_string(e.transport().max_tag()));
    }
    collective->arm();
    e.enroll(id, collective);
    return collective;
  });
  e.wake();
  // The engine owns its collectives; who holds a collective holds its engine too.
  using Both = std::pair<std::shared_ptr<Engine>, std::shared_ptr<FlatAllreduce>>;
  auto both = std::make_shared<Both>(std::move(engine), made);
  return {both, made.get()};
}

FlatAllreduce::FlatAllreduce(Engine& engine, Memory& memory, Options options, PartialAllreducePlan plan,
                             std::uint32_t id)
    : engine_(&engine),
      memory_(memory),
      options_(std::move(options)),
      elements_(elements_of(options_.type, options_.op)),
      id_(id),
      plan_(std::move(plan)),
      pool_(std::make_shared<BufferPool>(memory, options_.count * size_of(elements_.accumulator))),
      data_blocks_(plan_.schedule.blocks_of(plan_.data)),
      results_(options_.missed == Options::Missed::kSum, options_.history),
      membership_(engine_->size()),
      told_{{.round = 0}, {.round = 1}} {}

// ------------------------------------------------------------------------------------------------ application side

std::shared_ptr<Call> FlatAllreduce::contribute(const std::byte* data) {
  engine_->check();
  if (open_flush_) {
    throw std::runtime_error("'" + options_.name + "': a flush ran into its timeout: call flush() again first");
  }
  auto call = std::make_shared<Call>();
  call->made = engine_->transport().now();
  Lock lock(mutex_);
  if (closed_) throw ClosedError("'" + options_.name + "' is closed");
  const bool combine = deposit_.full && options_.late == Options::Late::kAccumulate;
  if (combine) {
    deposit_.busy = true;  // the protocol waits: what was handed over must be in the next round
    lock.unlock();
    memory_.accumulate(elements_, options_.op, deposit_.data.data(), data, options_.count);
    lock.lock();
    deposit_.busy = false;
  } else {
    lock.unlock();
    if (!spare_) spare_ = pool_->take();
    memory_.load(elements_, spare_.data(), data, options_.count);
    lock.lock();
  }
  hand_over(*call, spare_, combine);
  attention_.store(true, std::memory_order_release);
  const bool late = call->late;
  if (!late) pending_.push_back(call);
  lock.unlock();
  if (!late) engine_->advance();  // the arrival is on its way before the caller does anything else
  return call;
}

/// The one atomic step of a contribution: its data changes hands, and the call learns what it waits for.
void FlatAllreduce::hand_over(Call& call, BufferRef& spare, bool combined) {
  promise_kept();
  call.sequence = ++sequence_;
  call.late = completed_ > accounted_;
  const bool missed_its_round = (call.late || part_taken_) && !held_;
  if (!(missed_its_round && options_.late == Options::Late::kDrop)) {
    if (!combined) {
      std::swap(deposit_.data, spare);
      deposit_.contributions = 0;
    }
    if (!deposit_.full || !combined) deposit_.handed_over_at = completed_;
    deposit_.full = true;
    ++deposit_.contributions;
    deposit_.newest = call.sequence;
    deposit_.fresh_for = call.late ? Deposit::kStale : completed_;
  }
  if (call.late) {
    call.round = completed_ - 1;
    call.info = results_.newest().summary.info_for(call.sequence);
    call.done = true;
    promised_ = call.round;  // so that it is still there when the application looks
    kept_ = results_.newest().summary;
    accounted_ = completed_;
  } else {
    call.round = completed_;
    promised_ = completed_;
    arrival_ = completed_;
  }
}

/// Calls whose round has completed are done, whether or not anybody looked: what they are told is kept with them.
void FlatAllreduce::promise_kept() {
  if (!promised_ || completed_ <= *promised_) return;
  for (const std::shared_ptr<Call>& call : pending_) {
    call->info = kept_.info_for(call->sequence);
    call->done = true;
  }
  pending_.clear();
  accounted_ = std::max(accounted_, *promised_ + 1);
  promised_.reset();
}

bool FlatAllreduce::try_finish(Call& call) {
  if (call.given) return true;
  Lock lock(mutex_);
  if (call.flush) {
    if (flushes_ <= call.epoch) return false;
    flush_waits_ = false;
    open_flush_.reset();
    call.round = flushed_.info.round;
    call.info = flushed_.info_for(call.sequence);
  } else if (completed_ <= call.round) {
    return false;
  }
  promise_kept();
  const Given given = collect(call, lock);
  lock.unlock();
  publish(given);
  return true;
}

bool FlatAllreduce::test(Call& call) {
  engine_->check();
  if (try_finish(call)) return true;
  engine_->advance();
  engine_->check();
  return try_finish(call);
}

const RoundInfo& FlatAllreduce::wait(Call& call, Seconds timeout, const Engine::Interrupt& interrupt) {
  engine_->check();
  if (try_finish(call)) return call.info;
  if (!engine_->wait([&] { return try_finish(call); }, timeout, interrupt)) stall(call, interrupt);
  return call.info;
}

std::shared_ptr<Call> FlatAllreduce::start_flush() {
  engine_->check();
  if (open_flush_) return open_flush_;
  auto call = std::make_shared<Call>();
  {
    const Lock lock(mutex_);
    if (closed_) throw ClosedError("'" + options_.name + "' is closed");
    call->flush = true;
    call->made = engine_->transport().now();
    call->epoch = flushes_;
    call->sequence = sequence_;
    flush_waits_ = true;
    wants_flush_ = true;
  }
  open_flush_ = call;
  attention_.store(true, std::memory_order_release);
  engine_->advance();
  return call;
}

void FlatAllreduce::close() {
  engine_->check();
  {
    const Lock lock(mutex_);
    if (closed_) return;
    closed_ = true;
    wants_close_ = true;
  }
  attention_.store(true, std::memory_order_release);
  engine_->advance();
}

std::size_t FlatAllreduce::discard() {
  if (!engine_->is_in_own_process()) return 0;  // the parent's, which still has it
  Lock lock(mutex_);
  while (deposit_.busy) {  // another thread is contributing: it takes a copy's time
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  deposit_.full = false;
  return std::exchange(deposit_.contributions, 0);
}

std::shared_ptr<const std::byte> FlatAllreduce::result() const {
  if (!result_) return nullptr;
  const auto reference = std::make_shared<BufferRef>(result_);
  return {reference, reference->data()};
}

bool FlatAllreduce::closed() const {
  const Lock lock(mutex_);
  return closed_;
}

RoundNumber FlatAllreduce::rounds() const {
  const Lock lock(mutex_);
  return completed_;
}

/// Takes from the desk every round up to the call's that the application has not been given.
FlatAllreduce::Given FlatAllreduce::collect(Call& call, Lock& lock) {
  while (folding_) {  // a round is being added to the total: it takes a copy's time
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  Given given;
  call.done = call.given = true;
  if (call.round < given_) return given;  // a later call was given it already
  if (!results_.holds(call.round)) {
    // Its round was superseded, or added to the total, before anybody looked: it is told of the newest, as a late call.
    call.round = results_.newest().round();
    call.info = results_.newest().summary.info_for(call.sequence);
  }
  const RoundNumber before = given_;
  given.total = std::move(total_);
  while (auto record = results_.pop_until(call.round)) given.records.push_back(std::move(*record));
  given_ = std::max(call.round + 1, given.total ? totalled_ : 0);
  accounted_ = std::max(accounted_, given_);
  call.info.missed = given_ - before - 1;
  call.info.overrun = call.info.missed > options_.history;
  return given;
}

/// Makes `result_` from what was collected. Only what must be computed is copied: a single sum is given as it is.
/// A call whose round an earlier look has given already leaves the newest result; in "sum" mode its sum is empty, so
/// that adding up what every call gives counts every round once.
void FlatAllreduce::publish(const Given& given) {
  const bool sum_mode = options_.missed == Options::Missed::kSum;
  const bool nothing_new = given.records.empty() && !given.total;
  if (nothing_new && !sum_mode) return;
  const bool averages = options_.op == ReduceOp::kAvg;
  const auto divisor_of = [&](const RoundRecord& record) -> std::size_t {
    return averages ? std::max(record.summary.info.contributor_count, 1U) : 1;
  };
  const bool sums = sum_mode && (given.records.size() != 1 || given.total);
  BufferRef value;
  std::size_t divisor = 1;
  if (!sums && given.records.back().summary.info.contributor_count > 0) {
    value = given.records.back().data;
    divisor = divisor_of(given.records.back());
  } else {
    value = given.total ? given.total : pool_->take();
    if (!given.total) memory_.fill_identity(elements_, options_.op, value.data(), options_.count);
    for (const RoundRecord& record : given.records) {
      if (!sums || record.summary.info.contributor_count == 0) continue;
      memory_.add(elements_, value.data(), record.data.data(), options_.count, divisor_of(record));
    }
  }
  if (divisor > 1 || elements_.widened()) {
    BufferRef narrow = pool_->take();
    memory_.store(elements_, narrow.data(), value.data(), options_.count, divisor);
    value = std::move(narrow);
  }
  result_ = std::move(value);
}

void FlatAllreduce::stall(const Call& call, const Engine::Interrupt& interrupt) {
  constexpr Seconds kAnswerTime = 0.5;  // an engine answers by itself: who does not within this is stopped or gone
  const Seconds waited = engine_->transport().now() - call.made;
  RoundNumber round = call.round;
  {
    const Lock lock(mutex_);
    if (call.flush) round = completed_;
    reports_.assign(static_cast<std::size_t>(engine_->size()), Standing::kSilent);
    inquiry_ = inquired_ = round;
  }
  attention_.store(true, std::memory_order_release);
  const auto all_answered = [this] {
    const Lock lock(mutex_);
    return std::find(reports_.begin(), reports_.end(), Standing::kSilent) == reports_.end();
  };
  engine_->wait(all_answered, kAnswerTime, interrupt);

  const std::vector<Rank> gave_up = engine_->gave_up();
  std::vector<Rank> silent;
  std::vector<Rank> missing;
  {
    const Lock lock(mutex_);
    for (Rank r = 0; r < engine_->size(); ++r) {
      if (std::find(gave_up.begin(), gave_up.end(), r) != gave_up.end()) continue;
      const Standing standing = reports_[static_cast<std::size_t>(r)];
      if (standing == Standing::kSilent) silent.push_back(r);
      const bool has_come = call.flush ? standing == Standing::kLeft : standing != Standing::kNotArrived;
      if (standing != Standing::kSilent && !has_come) missing.push_back(r);
    }
  }
  std::string text = std::string(call.flush ? "flush of '" : "partial allreduce '") + options_.name + "', round " +
                     std::to_string(round) + ": not complete after " + in_seconds(waited) + ";";
  if (!missing.empty())
    text += (call.flush ? " have not flushed or closed: " : " have not arrived: ") + list_ranks(missing) + ";";
  if (!silent.empty()) text += " do not answer (stopped or gone): " + list_ranks(silent) + ";";
  if (!gave_up.empty()) {
    text += " gave up waiting in a collective call, the communicator is unusable: " + list_ranks(gave_up) + ";";
  }
  if (missing.empty() && silent.empty() && gave_up.empty())
    text += " every rank has arrived: the round is slow, wait again;";
  text.back() = '.';
  throw StallError(text);
}

// ------------------------------------------------------------------------------------------------ protocol side

bool FlatAllreduce::advance() {
  bool moved = false;
  if (attention_.load(std::memory_order_relaxed)) {
    attention_.store(false, std::memory_order_relaxed);  // before reading: what comes later sets it again
    read_desk();
    moved = true;
  }
  if (grace_ends_ < kNever && engine_->transport().now() >= grace_ends_) {
    start(told_of(round_).newest_arrival);
    moved = true;
  }
  if (phase_ == Phase::kActive && take()) {
    current_->run->pump();
    moved = true;
  }
  if (!draining_.empty()) retire();
  return moved;
}

void FlatAllreduce::read_desk() {
  bool arrived = false;
  bool flush = false;
  bool close = false;
  std::optional<RoundNumber> inquiry;
  {
    const Lock lock(mutex_);
    arrived = arrival_ == round_;
    arrival_.reset();
    flush = std::exchange(wants_flush_, false);
    close = std::exchange(wants_close_, false);
    inquiry = std::exchange(inquiry_, std::nullopt);
  }
  if (phase_ == Phase::kEnded) return;
  if (arrived) arrive();
  if (flush) leave(false);
  if (close) leave(true);
  if (inquiry) {
    for (Rank r = 0; r < engine_->size(); ++r) notify(r, Notice::kInquiry, *inquiry);
  }
}

/// The application has arrived in the present round.
void FlatAllreduce::arrive() {
  if (arrived_) return;
  arrived_ = true;
  if (phase_ != Phase::kArmed) return;
  if (!counts_arrivals(options_.policy)) return reconsider();
  const Rank referee = referee_of(options_.policy, round_, engine_->size());
  if (referee == engine_->rank()) {
    count_arrival(referee, round_);
  } else {
    notify(referee, Notice::kArrived, round_);
  }
}

FlatAllreduce::Told& FlatAllreduce::told_of(RoundNumber round) {
  Told& told = told_[round % 2];
  if (told.round != round) told = {.round = round};
  return told;
}

void FlatAllreduce::count_arrival(Rank from, RoundNumber round) {
  if (round < round_) return;  // of a round that has completed here meanwhile
  Told& told = told_of(round);
  told.arrived.insert(from);
  // Grace does not move the initiator: it is the rank whose arrival made the round possible.
  if (grace_ends_ == kNever || round != round_) told.newest_arrival = from;
  reconsider();
}

/// This rank is the root of the activation and `initiator` has started the round.
void FlatAllreduce::asked_to_start(Rank initiator, RoundNumber round) {
  if (round < round_) return;
  Told& told = told_of(round);
  told.starter = std::min(told.starter, initiator);
  reconsider();
}

void FlatAllreduce::leave(bool for_good) {
  membership_.leave(engine_->rank(), membership_.epoch(), for_good);
  for (Rank r = 0; r < engine_->size(); ++r) {
    if (r != engine_->rank()) notify(r, Notice::kLeft, membership_.epoch(), for_good ? 1 : 0);
  }
  reconsider();
}

/// Somebody has arrived or left, or the round has just been armed: may it start?
void FlatAllreduce::reconsider() {
  if (phase_ != Phase::kArmed) return;
  const Rank me = engine_->rank();
  const Rank size = engine_->size();
  if (membership_.all_left()) return start(me);  // the flush round
  if (const Rank starter = told_of(round_).starter; starter != kNoRank) return start(starter);
  if (!counts_arrivals(options_.policy)) {
    if (arrived_ && may_start(options_.policy, round_, me, membership_.left(), size)) start(me);
    return;
  }
  const Told& told = told_of(round_);
  if (!enough_arrived(options_.policy, round_, told.arrived, membership_.left(), size)) return;
  Rank come = 0;
  for (Rank r = 0; r < size; ++r) come += told.arrived.contains(r) || membership_.left().contains(r) ? 1 : 0;
  if (options_.policy.grace <= 0 || come == size) return start(told.newest_arrival);
  if (grace_ends_ == kNever) grace_ends_ = engine_->transport().now() + options_.policy.grace;
}

/// Fires this rank's own trigger, and asks the root of the activation to do the same.
void FlatAllreduce::start(Rank initiator) {
  initiator_ = initiator;
  grace_ends_ = kNever;
  if (plan_.root != kNoRank && plan_.root != engine_->rank()) {
    notify(plan_.root, Notice::kStart, round_, static_cast<std::uint32_t>(initiator));
  }
  current_->run->fire(plan_.start);
  current_->run->pump();
}

void FlatAllreduce::on_signal(Run& run, OpId op) {
  if (op == plan_.active) {
    phase_ = Phase::kActive;
    grace_ends_ = kNever;
    run.fire(plan_.start);  // consumed, if another rank started the round
    take();
  } else if (op == plan_.result) {
    complete(run);
  }
}

/// Takes the deposit into the running round, if it may go ahead.
bool FlatAllreduce::take() {
  const Rank me = engine_->rank();
  Presence own;
  BufferRef data;
  {
    const Lock lock(mutex_);
    if (deposit_.busy) return false;
    const bool held = options_.max_staleness && lacking_ >= *options_.max_staleness && !deposit_.full &&
                      !membership_.left().contains(me);
    held_ = held;
    if (held) return false;
    part_taken_ = true;
    taken_newest_ = 0;
    taken_staleness_ = 0;
    if (deposit_.full) {
      data = std::move(deposit_.data);
      own.contributors = 1;
      own.active = deposit_.fresh_for == round_ ? 1 : 0;
      taken_newest_ = deposit_.newest;
      taken_staleness_ = round_ - deposit_.handed_over_at;
      deposit_.full = false;
      deposit_.contributions = 0;
    }
  }
  lacking_ = own.contributors > 0 ? 0 : lacking_ + 1;
  if (!data) data = pool_->take();
  own.initiator = initiator_;
  own.left = membership_.left().contains(me) ? 1 : 0;
  own.closed = membership_.closed().contains(me) ? 1 : 0;

  phase_ = Phase::kRunning;
  current_->run->bind(plan_.data.buffer, data.data());
  current_->run->presence().assign(data_blocks_, own, own.contributors > 0 ? me : kNoRank);
  current_->data = std::move(data);
  current_->run->fire(plan_.release);
  return true;
}

void FlatAllreduce::complete(Run& run) {
  const Presence& all = run.presence().at(data_blocks_.first);
  const auto members = run.presence().members(data_blocks_.first);
  const auto size = static_cast<std::uint32_t>(engine_->size());
  const bool flush = all.left == size;  // every rank had left before it took part: nothing can be waiting any more
  const bool last = all.closed == size;

  RoundRecord record;
  RoundInfo& info = record.summary.info;
  info.round = round_;
  info.initiator = all.initiator;
  info.contributor_count = all.contributors;
  info.contributors.assign(members.begin(), members.end());
  info.active = all.active;
  info.staleness = taken_staleness_;
  record.summary.newest_included = taken_newest_;
  record.summary.flush = flush;
  record.data = current_->data;
  if (flush) membership_.next_epoch();
  draining_.push_back(std::exchange(current_, nullptr));
  ++round_;
  if (last) {
    phase_ = Phase::kEnded;
  } else {
    arm();
  }
  {
    const Lock lock(mutex_);
    if (promised_ == completed_) kept_ = record.summary;
    if (flush) {
      ++flushes_;
      flushed_ = record.summary;
    }
    results_.push(std::move(record), [this](const RoundRecord& other) {
      return promised_ == other.round() || (flush_waits_ && other.summary.flush);
    });
    ++completed_;
    part_taken_ = false;
  }
  fold_overflow();
  if (!last) reconsider();
}

/// Adds the oldest result to the running total when more rounds were missed than the history holds.
void FlatAllreduce::fold_overflow() {
  std::optional<RoundRecord> oldest;
  BufferRef total;
  {
    const Lock lock(mutex_);
    oldest = results_.overflow();
    if (!oldest) return;
    folding_ = true;
    total = std::move(total_);
  }
  struct Folded {  // an application waits for it: also if this throws
    FlatAllreduce& owner;
    ~Folded() {
      const Lock lock(owner.mutex_);
      owner.folding_ = false;
    }
  } const folded{*this};
  if (!total) {
    total = pool_->take();
    memory_.fill_identity(elements_, options_.op, total.data(), options_.count);
  }
  const RoundInfo& info = oldest->summary.info;
  if (info.contributor_count > 0) {
    memory_.add(elements_, total.data(), oldest->data.data(), options_.count,
                options_.op == ReduceOp::kAvg ? info.contributor_count : 1);
  }
  const Lock lock(mutex_);
  total_ = std::move(total);
  totalled_ = info.round + 1;
}

/// Makes the present round ready to be started by anybody.
void FlatAllreduce::arm() {
  if (idle_runs_.empty()) {
    auto pooled = std::make_unique<PooledRun>();
    const RunContext context{.schedule = plan_.schedule,
                             .memory = memory_,
                             .transport = engine_->transport(),
                             .elements = elements_,
                             .op = options_.op,
                             .element_bytes = options_.count == 0 ? 0 : size_of(elements_.accumulator),
                             .collective = id_,
                             .track_members = options_.track_members,
                             .trace = engine_->trace()};
    pooled->run = std::make_unique<Run>(context, engine_->reserve_run(), std::vector{plan_.data.buffer},
                                        [this](Run& run, OpId op) { on_signal(run, op); });
    engine_->set_run(*pooled->run);
    idle_runs_.push_back(pooled.get());
    pool_of_runs_.push_back(std::move(pooled));
  }
  current_ = idle_runs_.back();
  idle_runs_.pop_back();
  phase_ = Phase::kArmed;
  arrived_ = false;
  initiator_ = kNoRank;
  current_->run->arm(round_);
}

void FlatAllreduce::retire() {
  std::erase_if(draining_, [this](PooledRun* pooled) {
    if (!pooled->run->retired()) return false;
    pooled->data.reset();
    idle_runs_.push_back(pooled);
    return true;
  });
}

void FlatAllreduce::abandon() {
  {
    const Lock lock(mutex_);
    deposit_.full = false;
    closed_ = true;
    wants_close_ = true;
  }
  attention_.store(true, std::memory_order_release);
}

void FlatAllreduce::notify(Rank to, Notice::Kind kind, std::uint64_t number, std::uint32_t value) {
  const Notice notice{{id_, kind}, number, value, 0};
  engine_->transport().notify(to, std::as_bytes(std::span(&notice, 1)));
}

void FlatAllreduce::on_notice(Rank from, ConstBytes bytes) {
  Notice notice;
  if (bytes.size() != sizeof notice) throw InternalError("a notice has the wrong length");
  std::memcpy(&notice, bytes.data(), sizeof notice);
  switch (notice.header.kind) {
    case Notice::kArrived:
      return count_arrival(from, notice.number);
    case Notice::kStart:
      return asked_to_start(static_cast<Rank>(notice.value), notice.number);
    case Notice::kLeft:
      membership_.leave(from, notice.number, notice.value != 0);
      return reconsider();
    case Notice::kInquiry:
      return notify(from, Notice::kReport, notice.number, static_cast<std::uint32_t>(standing(notice.number)));
    case Notice::kReport: {
      const Lock lock(mutex_);
      if (!reports_.empty() && notice.number == inquired_)
        reports_[static_cast<std::size_t>(from)] = static_cast<Standing>(notice.value);
      return;
    }
    default:
      throw InternalError("a notice of unknown kind " + std::to_string(notice.header.kind));
  }
}

FlatAllreduce::Standing FlatAllreduce::standing(RoundNumber round) const {
  if (round < round_) return Standing::kComplete;
  if (membership_.left().contains(engine_->rank())) return Standing::kLeft;
  return arrived_ ? Standing::kArrived : Standing::kNotArrived;
}

}  // namespace pyc
