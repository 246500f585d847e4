#include "services/parameter_server/direct.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>

#include "core/error.h"
#include "services/parameter_server/known.h"

namespace pyc::server {
namespace {

/// One clock for all processes of the node.
Seconds node_now() {
  return std::chrono::duration<Seconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr std::uint64_t kTicketsOfAPush = Pipeline::kTickets / 2;  // others may take some meanwhile

}  // namespace

Direct::Direct(Engine& engine, Memory& memory, Options options, Update update, const Nodes& nodes)
    : ParameterServer(engine, memory, std::move(options), nodes), update_(std::move(update)) {}

void Direct::start(const std::byte* weights) {
  if (rank() == layout_.coordinator()) shard().start(weights);
}

// ------------------------------------------------------------------------------------------------ deciding

/// `decide` asks the ledger; what follows gets its place in the order, and who may go on is rung for.
template <class Decide>
std::vector<Direct::Job> Direct::decide(const Decide& decide) {
  std::vector<Job> jobs;
  {
    const std::lock_guard lock(board_->mutex());
    decisions_.clear();
    decide(board_->ledger());
    for (Step& step : decisions_.steps) jobs.push_back(placed(std::move(step)));
  }
  for (const Release& release : decisions_.releases) board_->ring(options_.workers[release.worker]);
  for (const Worker w : decisions_.missing) {
    engine_->warn("parameter server '" + name() + "': " + list_ranks({options_.workers[w]}) +
                  " has stopped pushing while others wait: it is left out until it pushes again.");
  }
  return jobs;
}

/// Under the mutex: in the order of decisions.
Direct::Job Direct::placed(Step step) {
  Job job;
  if (step.update != 0 || step.use) job.ticket = shard().pipeline().enter(step.update != 0, rank());
  const auto is_own = [&](const Part& part) { return part.worker == step.worker; };
  const bool in_place = step.use && !step.adds && !step.next && !step.keep && !layout_.elements().widened() &&
                        std::any_of(step.parts.begin(), step.parts.end(), is_own);
  if (step.use && !in_place) job.accumulator = shard().accumulator(step.worker, step.next);
  for (const Part& part : step.parts) {
    job.terms.push_back({in_place && is_own(part) ? nullptr : shard().accumulator(part.worker), part.weight});
  }
  if (step.turn) shard().turn();
  job.step = std::move(step);
  return job;
}

Outcome Direct::outcome() const {
  const std::lock_guard lock(board_->mutex());
  return account().outcome;
}

void Direct::push_pull(Kind kind, const std::byte* gradient, std::byte* out, const Limit& limit) {
  check_open();
  check_worker();
  wait_for_turn(limit);
  const Seconds begin = track().now();
  const bool has_weights = submit(kind, gradient, out, limit);
  track().add("push", begin, clock_.load());
  if (!has_weights) pull(out, limit);
}

/// Whether `out` has been filled.
bool Direct::submit(Kind kind, const std::byte* gradient, std::byte* out, const Limit& limit) {
  check_whole();
  Pipeline& pipeline = shard().pipeline();
  if (!pipeline.has_room(kTicketsOfAPush)) {
    wait_for("push", [&] { return pipeline.has_room(kTicketsOfAPush); }, limit);
  }
  const std::vector<Job> jobs =
      decide([&](Ledger& ledger) { ledger.push(worker(), kind, given_.load(), node_now(), decisions_); });
  const Clock clock = clock_.load() + 1;
  const bool goes_on = std::any_of(decisions_.releases.begin(), decisions_.releases.end(),
                                   [this](const Release& release) { return release.worker == worker(); });
  clock_.store(clock);
  has_reply_ = false;
  bool has_weights = false;
  for (const Job& job : jobs) {
    if (!job.ticket) continue;
    const bool is_own = job.step.has_gradient();
    const bool gives = is_own && job.step.update != 0 && out != nullptr && goes_on;
    work(job, is_own ? gradient : nullptr, gives ? out : nullptr, limit.interrupt);
    if (!gives) continue;
    has_weights = true;
    given_.store(job.ticket->version);
  }
  return has_weights;
}

void Direct::leave() {
  check_open();
  const Engine::Interrupt none;
  for (const Job& job : decide([&](Ledger& ledger) { ledger.leave(worker(), node_now(), decisions_); })) {
    if (job.ticket) work(job, nullptr, nullptr, none);
  }
}

/// Somebody who waits takes out who is missing.
void Direct::look(const Engine::Interrupt& interrupt) {
  constexpr Seconds kLookPeriod = 0.02;
  const Seconds now = node_now();
  if (now < next_look_) return;
  next_look_ = now + kLookPeriod;
  const auto jobs = decide([&](Ledger& ledger) {
    if (now >= ledger.deadline()) ledger.look(now, decisions_);
  });
  for (const Job& job : jobs) {
    if (job.ticket) work(job, nullptr, nullptr, interrupt);
  }
}

// ------------------------------------------------------------------------------------------------ working

/// Block by block, behind the work before it.
void Direct::follow(const Ticket& ticket, const Engine::Interrupt& interrupt,
                    const std::function<void(std::size_t)>& act) {
  Pipeline& pipeline = shard().pipeline();
  for (std::size_t block = 0; block < pipeline.blocks(); ++block) {
    if (!pipeline.may_enter(ticket, block)) {
      wait_in_work(
          [&] {
            check_whole();
            return pipeline.may_enter(ticket, block);
          },
          interrupt);
    }
    act(block);
    pipeline.passed(ticket, block);
  }
}

/// The same for work that changes something: what is begun is ended, or nobody may go on.
void Direct::in_order(const Ticket& ticket, const Engine::Interrupt& interrupt,
                      const std::function<void(std::size_t)>& act) {
  try {
    follow(ticket, interrupt, act);
  } catch (...) {
    shard().pipeline().break_by(rank());
    throw;
  }
}

void Direct::check_whole() const {
  const Rank by = shard().pipeline().broken();
  if (by == kNoRank) return;
  check_alive();
  throw std::runtime_error("'" + name() + "': " + list_ranks({by}) +
                           " was interrupted in the middle of an update: the weights are unusable");
}

void Direct::work(const Job& job, const std::byte* gradient, std::byte* out, const Engine::Interrupt& interrupt) {
  std::vector<Term> terms = job.terms;
  for (Term& term : terms) {
    if (term.values == nullptr) term.values = gradient;
  }
  if (update_ && job.step.update != 0) return call(job, terms, gradient, out, interrupt);
  in_order(known(job.ticket), interrupt, [&](std::size_t block) {
    if (is_elastic()) return average(block, gradient, out);
    if (job.accumulator != nullptr) shard().gather(block, job.accumulator, gradient, job.step.adds);
    if (!terms.empty()) return shard().update(block, terms, job.step.update, out);
    if (out != nullptr) shard().read(block, out);
  });
  has_reply_ = is_elastic() && gradient != nullptr && out == nullptr;
}

/// All that came before is done, and the whole model is this rank's until the call is over. What the call throws is
/// thrown when the others may go on.
void Direct::call(const Job& job, const std::vector<Term>& terms, const std::byte* gradient, std::byte* out,
                  const Engine::Interrupt& interrupt) {
  Pipeline& pipeline = shard().pipeline();
  std::exception_ptr error;
  const auto begin = [&] {
    for (std::size_t b = 0; b < pipeline.blocks(); ++b) {
      if (job.accumulator != nullptr) shard().gather(b, job.accumulator, gradient, job.step.adds);
      if (!terms.empty()) shard().sum(b, terms, sum_.get());
    }
    try {
      if (!terms.empty()) update_(shard().weights(), sum_.get());
    } catch (...) {
      error = std::current_exception();
    }
  };
  try {
    if (!sum_) sum_ = memory_.allocate(shard().count() * layout_.wide_bytes());
    wait_in_work(
        [&] {
          check_whole();
          return pipeline.may_enter(known(job.ticket), pipeline.blocks() - 1);
        },
        interrupt);
  } catch (...) {
    pipeline.break_by(rank());
    throw;
  }
  in_order(known(job.ticket), interrupt, [&](std::size_t block) {
    if (block == 0) begin();
    if (out != nullptr) shard().read(block, out);
  });
  if (error) std::rethrow_exception(error);
}

/// What becomes of the pushed weights goes to the caller, or waits for his `pull`.
void Direct::average(std::size_t block, const std::byte* values, std::byte* out) {
  if (values == nullptr) return;
  if (out != nullptr) return shard().average(block, values, out);
  shard().gather(block, shard().accumulator(worker()), values, false);
  shard().average(block, shard().accumulator(worker()));
}

void Direct::fetch(std::byte* out, const Limit& limit) {
  check_whole();
  Pipeline& pipeline = shard().pipeline();
  if (has_reply_) {
    for (std::size_t b = 0; b < pipeline.blocks(); ++b) shard().narrow(b, shard().accumulator(worker()), out);
    return given_.store(outcome().version);
  }
  if (worker_ && clock_.load() > 0) outcome();  // whoever has let this rank go has his update in order after that
  std::optional<Ticket> ticket;
  const auto enter = [&] {
    if (!ticket) ticket = pipeline.enter(false, rank());
    return ticket.has_value();
  };
  wait_for("pull", enter, limit);
  const Ticket& held = known(ticket);
  try {
    follow(held, limit.interrupt, [&](std::size_t block) { shard().read(block, out); });
  } catch (...) {
    pipeline.passed(held, pipeline.blocks() - 1);  // it reads no more
    throw;
  }
  given_.store(held.version);
}

// ------------------------------------------------------------------------------------------------ waiting

bool Direct::sleep(Seconds limit, const std::function<bool()>& done) {
  const std::uint32_t rings = board_->rings();  // before looking
  if (done()) return true;
  check_whole();
  look({});
  if (!done()) board_->sleep(rings, limit);
  return true;
}

std::optional<std::vector<Rank>> Direct::awaited(const Limit&) {
  std::vector<Rank> ranks;
  const std::lock_guard lock(board_->mutex());
  for (const Worker w : board_->ledger().awaited()) ranks.push_back(options_.workers[w]);
  return ranks;
}

std::vector<std::byte> Direct::counts(const Limit&) {
  check_open();
  const std::lock_guard lock(board_->mutex());
  const auto all = board_->ledger().memory();
  return {all.begin(), all.end()};
}

void Direct::on_message(Rank from, ConstBytes bytes) {
  const auto receive = Handlers{
      [this](Rank by, const messages::Inquiry&) { answer(by); },
      [this](Rank by, const messages::Answer& answer) { answered(by, answer.report); },
      [](Rank, const auto&, const auto&...) { throw InternalError("a message for a server, where there is none"); },
  };
  messages::Messages::deliver(from, bytes, receive);
}

// ------------------------------------------------------------------------------------------------ the end

void Direct::tell_closed() {
  board_->close();
  if (!worker_) return;
  try {
    const Engine::Interrupt none;
    for (const Job& job : decide([&](Ledger& ledger) { ledger.leave(worker(), node_now(), decisions_); })) {
      if (job.ticket) work(job, nullptr, nullptr, none);
    }
  } catch (const std::exception&) {
    return;  // a rank has died, or was interrupted in an update: whoever else needs it will see
  }
}

std::vector<Rank> Direct::not_closed() const {
  std::vector<Rank> ranks;
  for (Rank r = 0; r < engine_->size(); ++r) {
    if (!board_->has_closed(r)) ranks.push_back(r);
  }
  return ranks;
}

}  // namespace pyc::server
