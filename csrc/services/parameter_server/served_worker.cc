// The application's side: how a worker hands gradients over, and gets weights.
#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.h"
#include "services/common/waiting.h"
#include "services/parameter_server/known.h"
#include "services/parameter_server/served.h"
#include "services/parameter_server/streaming.h"

namespace pyc::server {
namespace {

/// A reader stays so far behind the server: it is the faster one, and would wait for each block of its own.
constexpr std::size_t kBlocksApart = 32;

}  // namespace

Outcome Served::outcome() const {
  return engine_->exclusively([this] { return outcome_; });
}

void Served::leave(const Limit&) {
  check_open();
  tell_coordinator([this] { known(ledger_).leave(worker(), engine_->transport().now(), decisions_); },
                   messages::Leave{});
}

/// `decide`: if this rank is the coordinator itself.
template <class Decide, class Message>
void Served::tell_coordinator(const Decide& decide, const Message& message) {
  engine_->exclusively([&] {
    if (!ledger_) return mailbox().send(layout_.coordinator(), message);
    decisions_.clear();
    decide();
    publish();
  });
  engine_->wake();
}

// ------------------------------------------------------------------------------------------------ handing over

/// Whether the gradient before is out of the way everywhere.
bool Served::has_room() const {
  if (open_gradients_.load() != 0) return false;
  for (std::size_t s = 0; s < layout_.shards(); ++s) {
    if (shard_at(s) == nullptr) continue;
    const Shard::Slot& slot = shard_at(s)->slot(worker());
    if (slot.taken.load(std::memory_order_acquire) != slot.full.load()) return false;
  }
  return true;
}

/// The gradient lies in the slots of this node before anybody is told of it: no server waits for a copy.
void Served::hand_over(Kind kind, const std::byte* gradient, const Limit& limit) {
  const Clock clock = clock_.load() + 1;
  if (gradient != nullptr && !has_room()) {
    wait_for("push " + std::to_string(clock), [this] { return has_room(); }, limit);
  }
  const Version version = given_.load();
  clock_.store(clock);
  if (gradient != nullptr) {
    last_gradient_ = clock;
    has_reply_ = is_elastic();
    fill_slots(gradient, clock);
  }
  tell_coordinator([&] { known(ledger_).push(worker(), kind, version, engine_->transport().now(), decisions_); },
                   messages::Push{static_cast<std::uint64_t>(kind), version});
}

void Served::fill_slots(const std::byte* gradient, Clock clock) {
  const auto count_remote = [this] {
    std::size_t remote = 0;
    for (std::size_t s = 0; s < layout_.shards(); ++s) remote += shard_at(s) == nullptr ? 1U : 0U;
    return remote;
  };
  const std::size_t remote = count_remote();
  open_gradients_ = remote;
  const auto load = [&](std::size_t s, std::byte* into) {
    const std::byte* const from = gradient + layout_.first(s) * layout_.element_bytes();
    if (layout_.elements().widened()) return memory_.load(layout_.elements(), into, from, layout_.count(s));
    stream_copy(into, from, layout_.count(s) * layout_.element_bytes());
  };
  for (std::size_t s = 0; s < layout_.shards(); ++s) {
    if (shard_at(s) != nullptr) continue;
    std::byte* const own = part(outgoing_.get(), s, layout_.wide_bytes());
    load(s, own);
    engine_->exclusively([&] { transfers_.offer(options_.servers[s], Transfers::Kind::kGradient, clock, own); });
  }
  for (std::size_t s = 0; s < layout_.shards(); ++s) {
    if (shard_at(s) == nullptr) continue;
    load(s, shard_at(s)->incoming(worker()));
    shard_at(s)->slot(worker()).full.store(clock, std::memory_order_release);
  }
  if (remote > 0) engine_->advance();
}

// ------------------------------------------------------------------------------------------------ getting

void Served::fetch(std::byte* out, const Limit& limit) {
  const Version version = worker_ && clock_.load() > 0 ? outcome().version : 0;
  const Clock reply = has_reply_ ? last_gradient_ : 0;
  const std::string what = "pull of version " + std::to_string(version) + " or later";
  std::vector<std::size_t> remote;
  for (std::size_t s = 0; s < layout_.shards(); ++s) {
    if (shard_at(s) == nullptr) remote.push_back(s);
  }
  const auto ask = [&] {
    return engine_->exclusively([&] {
      bool all = true;
      for (const std::size_t s : remote) all = has_answered(s, version, reply) && all;
      return all;
    });
  };
  if (!remote.empty()) ask();
  Version oldest = std::numeric_limits<Version>::max();
  for (std::size_t s = 0; s < layout_.shards(); ++s) {
    if (shard_at(s) != nullptr) oldest = std::min(oldest, read_local(s, out, version, reply, limit, what));
  }
  if (!remote.empty()) wait_for(what, ask, limit);
  for (const std::size_t s : remote) {
    memory_.copy(part(out, s, layout_.element_bytes()), part(incoming_.get(), s, layout_.element_bytes()),
                 layout_.count(s) * layout_.element_bytes());
    oldest = std::min(oldest, questions_[s].version);
    questions_[s].answered = false;
  }
  given_.store(oldest);
}

/// Asks, unless it has. An answer to an earlier question may be too old.
bool Served::has_answered(std::size_t s, Version version, Clock reply) {
  Question& question = questions_[s];
  if (question.asked) return false;
  if (question.answered && question.version >= version && question.clock == reply) return true;
  question = {.asked = true, .answered = false, .version = 0, .clock = reply};
  mailbox().send(options_.servers[s], messages::Pull{version, reply});
  return false;
}

/// Of a server on this node; the version.
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
  wait_for(what, enter, limit);
  const Ticket& held = known(ticket);
  try {
    for (std::size_t b = 0; b < pipeline.blocks(); ++b) {
      const std::size_t ahead = std::min(b - b % kBlocksApart + kBlocksApart, pipeline.blocks()) - 1;
      if (b % kBlocksApart == 0) {
        wait_for(what, [&] { return pipeline.may_enter(held, ahead); }, limit, behind(pipeline, held, ahead));
      }
      shard.read(b, into);
      pipeline.passed(held, b);
    }
  } catch (...) {
    pipeline.passed_all(held);  // it reads no more
    throw;
  }
  return held.version;
}

// ------------------------------------------------------------------------------------------------ questions

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
