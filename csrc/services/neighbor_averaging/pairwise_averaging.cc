#include "services/neighbor_averaging/pairwise_averaging.h"

#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "core/at_end.h"
#include "core/error.h"

namespace pyc {
namespace {

constexpr Seconds kRest = 1e-3;            // shortest rest after an average, before jitter
constexpr double kShareOfTime = 1.0 / 30;  // of a core, at most, for averages on the node
constexpr Seconds kLastRefusalRest = 10e-3;
constexpr std::size_t kBytesPerPass = MessageAverage::kBytesPerPass;

void raise_to(std::atomic<std::uint64_t>& maximum, std::uint64_t value) {
  std::uint64_t before = maximum.load(std::memory_order_relaxed);
  while (before < value && !maximum.compare_exchange_weak(before, value, std::memory_order_relaxed)) continue;
}

}  // namespace

// ------------------------------------------------------------------------------------------------ the application

ModelBoard::WhileWaiting PairwiseAveraging::while_waiting(const Engine::Interrupt& interrupt) const {
  const Seconds begin = engine_->transport().now();
  return [this, &interrupt, begin, warn_after = engine_->stall_warning()]() mutable {
    engine_->check_process();
    if (interrupt) interrupt();
    if (warn_after < 0 || engine_->transport().now() - begin < warn_after) return;
    engine_->warn(awaited_lock());
    warn_after *= 2;
  };
}

/// Lets a change of the model finish: keeps the first exception of a signal handler for later. The second one ends the
/// wait at once, for users who interrupt a wait for a stopped process.
class PairwiseAveraging::Deferred {
 public:
  explicit Deferred(ModelBoard::WhileWaiting waiting) : waiting_(std::move(waiting)) {}

  void operator()() {
    try {
      waiting_();
    } catch (...) {
      if (raised_) throw;
      raised_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (raised_) std::rethrow_exception(raised_);
  }

 private:
  const ModelBoard::WhileWaiting waiting_;
  std::exception_ptr raised_;
};

/// An average holds the lock for microseconds, unless its process is stopped.
std::string PairwiseAveraging::awaited_lock() const {
  std::vector<Rank> stopped;
  for (const Rank neighbor : choice_.all()) {
    if (!is_local(neighbor)) continue;
    const ProcessState state = state_of(board_->process(nodes_.local_rank_of(neighbor)));
    if (state == ProcessState::kStopped) stopped.push_back(neighbor);
  }
  return "'" + name() + "' waits for a part of this rank's model, which is being averaged" +
         (stopped.empty() ? "." : "; stopped: " + list_ranks(stopped) + ".");
}

void PairwiseAveraging::read(std::byte* out, const Engine::Interrupt& interrupt) {
  before_call();
  const std::uint64_t averages = board_->averages(board_->local_rank());
  on_device([&] { board_->read(elements_, 0, options_.count, out, while_waiting(interrupt)); });
  read_at_ = averages;
}

void PairwiseAveraging::read_kept(std::byte* out, const Engine::Interrupt& interrupt) {
  before_call();
  on_device([&] { board_->read_kept(options_.count, out, while_waiting(interrupt)); });
}

void PairwiseAveraging::apply(const std::byte* delta, const Engine::Interrupt& interrupt) {
  before_call();
  Deferred deferred(while_waiting(interrupt));
  const ModelBoard::WhileWaiting waiting = std::ref(deferred);
  on_device([&] {
    const double weight = options_.by_frequency ? weight_of_call(waiting) : 1;
    board_->apply(elements_, 0, options_.count, delta, weight, waiting);
  });
  count_application();
  if (failed_) {
    average_without_engine();
  } else if (engine_->progress() == Progress::kCaller) {
    engine_->advance();
  }
  deferred.rethrow();
}

/// Measures the time since the previous call, and gossips it. A signal handler that calls `apply` in this thread meets
/// an error instead of a deadlock.
double PairwiseAveraging::weight_of_call(const ModelBoard::WhileWaiting& waiting) {
  using Numbers = std::array<double, Importance::kNumbers>;
  const std::thread::id self = std::this_thread::get_id();
  if (measuring_ == self) throw std::runtime_error("'" + name() + "': this thread is in apply() already");
  const std::lock_guard lock(importance_mutex_);
  measuring_ = self;
  const AtEnd has_measured([this] { measuring_ = std::thread::id(); });
  const Numbers change = importance_.measure(engine_->transport().now());
  const auto exchange = [&](auto zero) {
    using Held = decltype(zero);
    std::array<Held, Importance::kNumbers> values{static_cast<Held>(change[0]), static_cast<Held>(change[1])};
    board_->exchange(options_.count, values.size(), reinterpret_cast<std::byte*>(values.data()), waiting);
    return Numbers{static_cast<double>(values[0]), static_cast<double>(values[1])};
  };
  return importance_.weight(elements_.accumulator == DataType::kFloat32 ? exchange(float{}) : exchange(double{}));
}

void PairwiseAveraging::count_application() {
  const std::uint64_t averages = board_->averages(board_->local_rank());
  const std::uint64_t read_at = read_at_;
  const std::uint64_t staleness = averages > read_at ? averages - read_at : 0;
  ++applied_;
  staleness_sum_ += staleness;
  raise_to(staleness_max_, staleness);
  if (options_.per_step) ++owed_;
}

void PairwiseAveraging::replace_held(const std::byte* before, const std::byte* values,
                                     const Engine::Interrupt& interrupt) {
  before_call();
  Deferred deferred(while_waiting(interrupt));
  on_device([&] { board_->replace(options_.count, before, values, std::ref(deferred)); });
  deferred.rethrow();
}

void PairwiseAveraging::pause(Seconds timeout, const Engine::Interrupt& interrupt) {
  before_call();
  engine_->check();
  engine_->exclusively([this] { set_paused(true); });
  const auto done = [this] {
    return engine_->exclusively([this] { return !on_node_ && (!messages_ || messages_->idle()); });
  };
  const auto awaited = [this] {
    const Rank with = engine_->exclusively([this] {
      return on_node_ ? on_node_->with : messages_ ? messages_->partner() : kNoRank;
    });
    std::vector<Awaited> all;
    if (with != kNoRank) all.push_back({.rank = with, .what = "the average with @", .known = RankState::kComplete});
    return all;
  };
  try {
    wait_for({.what = "the average that is under way",
              .done = done,
              .awaited = awaited,
              .sleep = [](Seconds) { return false; },  // the engine does the averages
              .if_none_is_missing = "it is slow, call again"},
             timeout, interrupt);
  } catch (...) {
    resume();
    throw;
  }
}

void PairwiseAveraging::resume() {
  engine_->exclusively([this] { set_paused(false); });
}

void PairwiseAveraging::set_paused(bool paused) {
  paused_ = paused;
  if (messages_) messages_->pause(paused);
}

void PairwiseAveraging::tell_closed() {
  board_->leave();
  if (on_node_) count(*on_node_);  // its other segments stay as they are
  on_node_.reset();
  if (messages_) messages_->leave();
  if (!failed_) mailbox_->broadcast(LeftAveraging{});
}

PairwiseStatistics PairwiseAveraging::statistics() {
  PairwiseStatistics all;
  all.begun = begun_;
  all.begun_between_nodes = begun_between_nodes_;
  all.averages = board_->averages(board_->local_rank());
  all.declined = declined_;
  all.skipped = skipped_ + (messages_ ? messages_->skipped() : 0);
  all.applied = applied_;
  all.staleness_sum = staleness_sum_;
  all.staleness_max = staleness_max_;
  all.waited = static_cast<double>(board_->waited_ns()) * 1e-9;
  return all;
}

// ------------------------------------------------------------------------------------------------ averages

bool PairwiseAveraging::advance() {
  if (device_ != nullptr && is_over()) return !device_->is_released() && device_->release();
  announce_failure();
  const Seconds now = engine_->transport().now();
  look_at_neighbors(now);
  bool moved = messages_ && messages_->advance();
  const auto ended = messages_ ? messages_->take_ended() : std::nullopt;
  moved = moved || ended;
  if (moved && next_ == kNever) next_ = now;
  if (ended) conclude(*ended, now);
  if (on_node_) return advance_on_node(kBytesPerPass) || moved;
  return (may_begin(now) && begin(now)) || moved;
}

Seconds PairwiseAveraging::deadline() const {
  return paused_ || closed() || choice_.all().empty() || (options_.per_step && owed_ == 0) ? kNever : next_;
}

bool PairwiseAveraging::may_begin(Seconds now) const {
  return !paused_ && !closed() && now >= next_ && (!options_.per_step || owed_ > 0) && !is_failure_announced_;
}

bool PairwiseAveraging::is_available(Rank neighbor) const {
  if (left_.contains(neighbor) || gone_[static_cast<std::size_t>(neighbor)]) return false;
  if (has_failed_device(neighbor)) return false;
  if (is_local(neighbor)) return !board_->has_left(nodes_.local_rank_of(neighbor));
  return options_.initiates && !failed_ && messages_->idle();
}

bool PairwiseAveraging::begin(Seconds now) {
  const std::optional<Rank> neighbor = choice_.next([this](Rank rank) { return is_available(rank); });
  if (!neighbor) {
    next_ = kNever;  // until an average by messages ends
    return false;
  }
  // A dead process takes its device memory with it.
  if (device_ != nullptr && is_local(*neighbor) && is_gone(*neighbor)) return true;
  if (options_.per_step) --owed_;
  if (!options_.per_step && options_.period > 0) next_ = now + options_.period;
  if (is_local(*neighbor)) {
    on_node_ = NodeAverage{*neighbor, nodes_.local_rank_of(*neighbor), now};
    return advance_on_node(kBytesPerPass);
  }
  requested_ = now;
  messages_->request(*neighbor);
  return true;
}

/// Averages segments of at most `bytes`, and at least one. Returns whether there were any.
bool PairwiseAveraging::advance_on_node(std::size_t bytes) {
  if (!on_node_) return false;
  NodeAverage& average = *on_node_;
  const std::size_t segments = std::max<std::size_t>(bytes / board_->shape().segment_bytes(), 1);
  const std::size_t end = std::min(board_->segments(), average.next_segment + segments);
  for (; average.next_segment < end; ++average.next_segment) {
    const bool averaged = board_->average(average.local, average.next_segment) == ModelBoard::Outcome::kAveraged;
    if (!averaged) ++skipped_;
    average.averaged = average.averaged || averaged;
  }
  if (average.next_segment < board_->segments()) return true;
  const NodeAverage ended = average;
  const Seconds now = engine_->transport().now();
  count(ended);
  on_node_.reset();
  if (!ended.averaged) {
    rest_after_refusal(now, ended.begun);
    return false;
  }
  rest(now, (now - ended.begun) / kShareOfTime);
  return true;
}

void PairwiseAveraging::count(const NodeAverage& average) {
  if (!average.averaged) return;
  board_->count_average(board_->local_rank());
  board_->count_average(average.local);
  took_turn(average.with);
  if (Trace* const trace = engine_->trace()) {
    trace->add("average with rank " + std::to_string(average.with), average.begun, engine_->transport().now(), id(),
               kNoRound);
  }
}

void PairwiseAveraging::conclude(const MessageAverage::Ended& ended, Seconds now) {
  if (ended.averaged) {
    ++begun_between_nodes_;
    took_turn(ended.with);
    return rest(now, kRest);
  }
  if (ended.refusal) ++declined_;
  if (ended.refusal == Refusal::kLeft) left_.insert(ended.with);
  if (ended.refusal == Refusal::kFailed) device_failed_[static_cast<std::size_t>(ended.with)] = true;
  rest_after_refusal(now, requested_);
}

void PairwiseAveraging::took_turn(Rank neighbor) {
  ++begun_;
  choice_.took_turn(neighbor);
  refusal_rest_ = kFirstRefusalRest;
}

void PairwiseAveraging::rest(Seconds now, Seconds duration) {
  if (options_.per_step) {
    next_ = now;
  } else if (options_.period == 0) {  // otherwise `begin` has set it
    next_ = now + std::max(kRest, duration) * jitter();
  }
}

/// Ranks that request each other at the same time all decline. A random rest prevents a repetition; it grows with the
/// duration of the request, during which the rank accepts none.
void PairwiseAveraging::rest_after_refusal(Seconds now, Seconds begun) {
  if (options_.per_step) ++owed_;
  next_ = std::max(next_, now + std::max(refusal_rest_, 2 * (now - begun)) * jitter());
  refusal_rest_ = std::min(2 * refusal_rest_, kLastRefusalRest);
}

/// Uniform in [0.5, 1.5).
double PairwiseAveraging::jitter() {
  constexpr std::size_t kSteps = 1U << 20U;
  return 0.5 + static_cast<double>(random_.below(kSteps)) / kSteps;
}

void PairwiseAveraging::receive(Rank from, ConstBytes message) {
  const auto receive = Handlers{
      [this](Rank rank, const AverageRequest& request) { exchange().on_request(rank, request); },
      [this](Rank rank, const AverageAccepted& accepted) { exchange().on_accepted(rank, accepted); },
      [this](Rank rank, const AverageDeclined& declined) { exchange().on_declined(rank, declined); },
      [this](Rank rank, const LeftAveraging&) { left_.insert(rank); },
      [this](Rank rank, const ModelLost&) { device_failed_[static_cast<std::size_t>(rank)] = true; },
  };
  PairwiseMailbox::deliver(from, message, receive);
}

MessageAverage& PairwiseAveraging::exchange() {
  if (!messages_) throw InternalError("a request for an average by messages from a rank that is no neighbor");
  return *messages_;
}

/// The models are final.
bool PairwiseAveraging::is_over() const {
  return closed() && left_.count() == engine_->size() && (!messages_ || messages_->idle());
}

bool PairwiseAveraging::finished() const { return is_over() && (device_ == nullptr || device_->is_released()); }

}  // namespace pyc
