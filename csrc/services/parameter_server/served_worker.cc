// The application's side: pushes and pulls of a served parameter server.
#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "core/at_end.h"
#include "core/error.h"
#include "services/common/waiting.h"
#include "services/parameter_server/known.h"
#include "services/parameter_server/served.h"
#include "services/parameter_server/streaming.h"

namespace pyc::server {
namespace {

/// The distance of a reader behind the server's update. A reader is faster and would otherwise wait for each block.
constexpr std::size_t kBlocksApart = 32;

}  // namespace

void Served::check_whole() const {
  Rank by = failed_;
  for (const std::size_t s : local_) {
    if (by == kNoRank) by = shard_at(s)->pipeline().broken();
  }
  if (by == kNoRank) return;
  throw std::runtime_error("'" + name() + "': the update function has raised an exception on " + list_ranks({by}) +
                           ", which prints it: the weights are unusable");
}

Outcome Served::outcome() const {
  return engine_->exclusively([this] { return outcome_; });
}

void Served::suspend(const Limit&) {
  check_open();
  tell_coordinator([this] { known(ledger_).leave(worker(), engine_->transport().now(), decisions_); },
                   messages::Leave{});
}

/// `decide` is called if this rank is the coordinator. Checks and sends under one lock: another thread may close, and
/// after this rank's Closed answers are not guaranteed.
template <class Decide, class Message>
void Served::tell_coordinator(const Decide& decide, const Message& message) {
  engine_->exclusively([&] {
    check_open();
    tell(decide, message);
  });
  engine_->wake();
}

/// Under the progress lock.
template <class Decide, class Message>
void Served::tell(const Decide& decide, const Message& message) {
  if (!ledger_) return mailbox().send(layout_.coordinator(), message);
  decisions_.clear();
  decide();
  publish();
}

// ------------------------------------------------------------------------------------------------ pushes

bool Served::has_room() const {
  const auto is_free = [this](std::size_t s) {
    const Shard::Slot& slot = shard_at(s)->slot(worker());
    return slot.taken.load(std::memory_order_acquire) == slot.full.load();
  };
  return !has_left_ && open_gradients_.load() == 0 && std::all_of(local_.begin(), local_.end(), is_free);
}

/// Fills the slots of this node before the push is announced, so that no server waits for a copy.
void Served::hand_over(Kind kind, const std::byte* gradient, const Limit& limit) {
  check_whole();
  const Clock clock = clock_.load() + 1;
  if (gradient == nullptr) return tell_push(kind, clock);
  wait_for_room(limit);
  stage(gradient);
  for (const std::size_t s : local_) fill_slot(s, gradient, clock);
  tell_push(kind, clock);
  last_gradient_ = clock;
  has_reply_ = is_elastic();
}

void Served::wait_for_room(const Limit& limit) {
  if (has_room()) return;
  wait_for("push " + std::to_string(clock_.load() + 1), [this] { return has_room(); }, limit);
}

/// Announces the push, and offers its gradient to servers of other nodes in the same pass.
void Served::tell_push(Kind kind, Clock clock) {
  const Version version = given_.load();
  engine_->exclusively([&] {
    check_open();
    if (kind == Kind::kGradient) offer_staged(clock);
    tell([&] { known(ledger_).push(worker(), kind, version, engine_->transport().now(), decisions_); },
         messages::Push{static_cast<std::uint64_t>(kind), version});
  });
  clock_.store(clock);
  engine_->wake();
}

void Served::stage(const std::byte* gradient) {
  for (const std::size_t s : remote_) load(s, part(outgoing_.get(), s, layout_.wide_bytes()), gradient);
}

void Served::offer_staged(Clock clock) {
  open_gradients_ = remote_.size();
  for (const std::size_t s : remote_) {
    std::byte* const values = part(outgoing_.get(), s, layout_.wide_bytes());
    transfers_.offer(options_.servers[s], Transfers::Kind::kGradient, clock, values);
  }
}

void Served::fill_slot(std::size_t s, const std::byte* gradient, Clock clock) {
  load(s, shard_at(s)->incoming(worker()), gradient);
  shard_at(s)->slot(worker()).full.store(clock, std::memory_order_release);
}

void Served::load(std::size_t s, std::byte* into, const std::byte* gradient) const {
  const std::byte* const from = gradient + layout_.first(s) * layout_.element_bytes();
  if (layout_.elements().widened()) return memory_.load(layout_.elements(), into, from, layout_.count(s));
  stream_copy(into, from, layout_.count(s) * layout_.element_bytes());
}

// ------------------------------------------------------------------------------------------------ pulls

void Served::fetch(std::byte* out, const Limit& limit, Version least) {
  check_whole();
  const Version version = std::max(least, worker_ && clock_.load() > 0 ? outcome().version : 0);
  const Clock reply = has_reply_ ? last_gradient_ : 0;
  const std::string what = "pull of version " + std::to_string(version) + " or later";
  const auto ask = [&] {
    return engine_->exclusively([&] {
      bool all = true;
      for (const std::size_t s : remote_) all = has_answered(s, version, reply) && all;
      return all;
    });
  };
  if (!remote_.empty()) ask();
  Version oldest = std::numeric_limits<Version>::max();
  for (const std::size_t s : local_) oldest = std::min(oldest, read_local(s, out, version, reply, limit, what));
  if (!remote_.empty()) wait_for(what, ask, limit);
  for (const std::size_t s : remote_) {
    memory_.copy(part(out, s, layout_.element_bytes()), part(incoming_.get(), s, layout_.element_bytes()),
                 layout_.count(s) * layout_.element_bytes());
    oldest = std::min(oldest, questions_[s].version);
    questions_[s].answered = false;
  }
  check_whole();  // a server announces a failure before it sends the broken weights
  given_.store(oldest);
}

/// Asks unless a request is pending. An answer to an earlier request may be too old.
bool Served::has_answered(std::size_t s, Version version, Clock reply) {
  Question& question = questions_[s];
  if (question.asked) return false;
  if (question.answered && question.version >= version && question.clock == reply) return true;
  check_open();  // requests after this rank's Closed may stay unanswered
  question = {.asked = true, .answered = false, .version = 0, .clock = reply};
  mailbox().send(options_.servers[s], messages::Pull{version, reply});
  return false;
}

/// From a server on this node. Returns the version.
Version Served::read_local(std::size_t s, std::byte* out, Version version, Clock reply, const Limit& limit,
                           const std::string& what) {
  Shard& shard = *shard_at(s);
  Pipeline& pipeline = shard.pipeline();
  std::byte* const into = part(out, s, layout_.element_bytes());
  if (reply != 0) {
    const Shard::Slot& slot = shard.slot(worker());
    wait_for(what, [&] { return slot.taken.load(std::memory_order_acquire) >= reply; }, limit);
    for (std::size_t b = 0; b < pipeline.blocks(); ++b) shard.narrow(b, shard.incoming(worker()), into);
    return pipeline.version();
  }
  std::optional<Ticket> ticket;
  const auto enter = [&] {
    if (pipeline.version() >= version && !ticket) ticket = pipeline.enter(false, rank());
    return ticket.has_value();
  };
  const auto wake_at = [&](Version awaited) {
    if (worker_) shard.slot(*worker_).awaited.store(awaited);
  };
  wake_at(version);
  const AtEnd is_awake([&] { wake_at(0); });
  try {
    wait_for(what, enter, limit);
    const Ticket& held = known(ticket);
    for (std::size_t b = 0; b < pipeline.blocks(); ++b) {
      const std::size_t ahead = std::min(b - b % kBlocksApart + kBlocksApart, pipeline.blocks()) - 1;
      if (b % kBlocksApart == 0) {
        wait_for(what, [&] { return pipeline.may_enter(held, ahead); }, limit, behind(pipeline, held, ahead));
      }
      shard.read(b, into);
      pipeline.passed(held, b);
    }
  } catch (...) {
    if (ticket) pipeline.passed_all(*ticket);  // it stops reading
    throw;
  }
  return known(ticket).version;
}

// ------------------------------------------------------------------------------------------------ inquiries

/// Servers of this node notify, also when they send a message. Servers of other nodes cannot.
bool Served::sleep(Seconds limit, const std::function<bool()>& done) {
  if (local_.empty()) return false;
  return sleep_until_notified(limit, done);
}

std::optional<std::vector<Rank>> Served::awaited(const Limit& limit) {
  const bool coordinates = ledger_.has_value();
  engine_->exclusively([&] {
    awaited_.clear();
    awaited_is_known_ = coordinates;
    if (coordinates) {
      awaited_ = awaited_ranks();
    } else {
      mailbox().send(layout_.coordinator(), messages::Ask{});
    }
  });
  const auto is_known = [this] { return engine_->exclusively([this] { return awaited_is_known_; }); };
  if (!engine_->wait(is_known, kAnswerTime, limit.interrupt)) return std::nullopt;
  return engine_->exclusively([this] { return awaited_; });
}

std::vector<std::byte> Served::counts(const Limit& limit) {
  check_open();
  const std::size_t bytes = Ledger::bytes(layout_.workers());
  if (ledger_) {
    return engine_->exclusively([this] {
      const auto all = known(ledger_).memory();
      return std::vector(all.begin(), all.end());
    });
  }
  engine_->exclusively([this] {
    counts_.clear();
    mailbox().send(layout_.coordinator(), messages::AskCounts{});
  });
  wait_for("statistics", [&] { return engine_->exclusively([&] { return counts_.size() == bytes; }); }, limit);
  return engine_->exclusively([this] { return counts_; });
}

}  // namespace pyc::server
