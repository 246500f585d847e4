// The engine's side of servers and the coordinator, under the engine's progress lock.
#include "services/parameter_server/served.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "services/parameter_server/known.h"

namespace pyc::server {

using messages::Messages;

namespace {

enum StepFlag : std::uint32_t { kUse = 1, kAdds = 2, kNext = 4, kTurn = 8, kKeep = 16 };

std::uint32_t flags_of(const Step& step) {
  return (step.use ? kUse : 0U) | (step.adds ? kAdds : 0U) | (step.next ? kNext : 0U) | (step.turn ? kTurn : 0U) |
         (step.keep ? kKeep : 0U);
}

}  // namespace

Served::Served(Engine& engine, Memory& memory, Options options, Update update, const Nodes& nodes)
    : ParameterServer(engine, memory, std::move(options), nodes),
      function_(std::move(update)),
      transfers_(engine, layout_),
      questions_(layout_.shards()) {
  for (std::size_t s = 0; s < layout_.shards(); ++s) (is_local(options_.servers[s]) ? local_ : remote_).push_back(s);
  if (remote_.empty()) return;
  constexpr std::size_t kSlack = 64;
  incoming_ = memory.allocate(options_.count * layout_.element_bytes() + kSlack);
  if (worker_) outgoing_ = memory.allocate(options_.count * layout_.wide_bytes() + kSlack);
}

Served::~Served() {
  if (calls_) calls_->end();
}

void Served::start(const std::byte* weights) {
  if (options_.resumed && worker_) {
    const Clock clock = options_.resumed->clocks[*worker_];
    take_release({clock, options_.resumed->version, 0, clock != 0 ? 1U : 0U});
  }
  if (const auto own = layout_.shard_of(rank())) {
    Shard& shard = *shard_at(*own);
    if (const auto& resumed = options_.resumed) {
      const std::byte* const arrays = weights + layout_.first(*own) * layout_.wide_bytes();
      shard.resume(*resumed, arrays, options_.count);
    } else {
      shard.start(weights + layout_.first(*own) * layout_.element_bytes());
    }
    if (function_) {
      BufferPtr gradient = memory_.allocate(shard.count() * layout_.wide_bytes());
      calls_ = std::make_shared<UpdateCalls>(std::move(function_), std::move(gradient), board_->memory());
    }
    executor_.emplace(shard, layout_, rank(), [this](Worker w) { notify(options_.workers[w]); }, calls_);
  }
  if (rank() != layout_.coordinator()) return;
  ledger_memory_.resize(Ledger::bytes(layout_.workers()) + 64);
  void* memory = ledger_memory_.data();
  std::size_t room = ledger_memory_.size();
  std::align(64, room - 64, memory, room);
  ledger_.emplace(options_, static_cast<std::byte*>(memory), true, engine_->transport().now());
}

bool Served::advance() {
  bool moved = false;
  if (ledger_ && !all_closed_ && engine_->transport().now() >= deadline()) {
    next_look_ = engine_->transport().now() + kLookPeriod;
    decisions_.clear();
    ledger_->look(engine_->transport().now(), decisions_);
    publish();
  }
  const auto sent = [this](Rank to, Transfers::Kind kind, std::uint64_t) {
    if (kind == Transfers::Kind::kGradient) {
      --open_gradients_;
    } else {
      readers_.at(to).sends = false;
    }
  };
  const auto received = [this](Rank from, Transfers::Kind kind, std::uint64_t number) {
    if (kind == Transfers::Kind::kGradient) {
      Shard::Slot& slot = shard_at(known(layout_.shard_of(rank())))->slot(known(layout_.worker_of(from)));
      slot.full.store(number, std::memory_order_release);
    } else {
      Question& question = questions_[known(layout_.shard_of(from))];
      question.asked = false;
      question.answered = true;
      question.version = number;
    }
  };
  moved = transfers_.advance(sent, received);
  if (executor_ && executor_->advance()) {
    last_step_ = engine_->transport().now();
    moved = true;
  }
  if (calls_) tell_failure();
  moved = advance_left() || moved;
  if (!offers_.empty()) moved = take_offers() || moved;
  if (calls_ && all_closed_ && have_all_closed() && known(executor_).idle()) calls_->end();
  return serve_readers() || moved;
}

/// The policy's deadline, but not before the next permitted look.
Seconds Served::deadline() const {
  if (!ledger_ || all_closed_) return kNever;
  return std::max(ledger_->deadline(), next_look_);
}

bool Served::is_idle() const {
  return transfers_.idle() && offers_.empty() && (!executor_ || executor_->idle()) &&
         std::none_of(readers_.begin(), readers_.end(), [](const auto& reader) { return reader.second.wants; }) &&
         std::none_of(questions_.begin(), questions_.end(), [](const Question& q) { return q.asked; });
}

// ------------------------------------------------------------------------------------------------ a server

/// Called before readers get the broken weights. Ranks of this node see the failure in shared memory.
void Served::tell_failure() {
  if (failed_ != kNoRank || !calls_->has_thrown() || is_calling()) return;
  failed_ = rank();
  mailbox().broadcast(messages::Failed{});
}

/// Gradients that have not arrived completely are not waited for, and reads of other ranks end.
bool Served::settle_once() {
  return engine_->exclusively([this] {
    for (auto& [to, reader] : readers_) {
      if (reader.ticket) shard_at(known(layout_.shard_of(rank())))->pipeline().passed_all(*reader.ticket);
      reader.ticket.reset();
    }
    bool moved = false;
    try {
      moved = executor_ && executor_->advance();
    } catch (const RankFailedError&) {
      executor_.reset();  // a rank has died while it took a ticket, so that none can take another one
    }
    return advance_left() || moved;
  });
}

/// Its ticket is the only one of this rank that is not done.
void Served::give_up_work(std::size_t s) {
  engine_->exclusively([&] {
    const auto given_up =
        std::erase_if(left_, [&](GrantedWork& work) { return &work.shard() == shard_at(s) && work.is_stuck(); });
    if (given_up > 0)
      shard_at(s)->pipeline().pass_for({rank()}, [](std::uint64_t, Rank, std::size_t) { return false; });
  });
}

bool Served::take_offers() {
  return std::erase_if(offers_, [this](const auto& offer) {
           const Worker from = known(layout_.worker_of(offer.first));
           Shard& shard = *shard_at(known(layout_.shard_of(rank())));
           const Shard::Slot& slot = shard.slot(from);
           if (transfers_.is_receiving(offer.first, Transfers::Kind::kGradient)) return false;
           if (slot.taken.load() != slot.full.load()) return false;
           transfers_.accept(offer.first, Transfers::Kind::kGradient, offer.second, shard.incoming(from));
           return true;
         }) > 0;
}

bool Served::serve_readers() {
  bool moved = false;
  for (auto& [to, reader] : readers_) {
    if (!reader.wants || reader.sends || !serve(to, reader)) continue;
    reader.wants = false;
    reader.sends = true;
    moved = true;
  }
  return moved;
}

/// Returns whether the wanted weights are copied and offered.
bool Served::serve(Rank to, Reader& reader) {
  Shard& shard = *shard_at(known(layout_.shard_of(rank())));
  Pipeline& pipeline = shard.pipeline();
  if (!reader.copy) reader.copy = memory_.allocate(shard.count() * layout_.element_bytes());
  if (reader.clock != 0) {
    const Worker from = known(layout_.worker_of(to));
    if (shard.slot(from).taken.load() < reader.clock) return false;
    for (std::size_t b = 0; b < pipeline.blocks(); ++b) shard.narrow(b, shard.incoming(from), reader.copy.get());
    transfers_.offer(to, Transfers::Kind::kWeights, pipeline.version(), reader.copy.get());
    return true;
  }
  if (!reader.ticket) {
    if (pipeline.version() < reader.version) return false;
    reader.ticket = pipeline.enter(false, rank());
    reader.block = 0;
    if (!reader.ticket) return false;
  }
  for (; reader.block < pipeline.blocks(); ++reader.block) {
    if (!pipeline.may_enter(*reader.ticket, reader.block)) return false;
    shard.read(reader.block, reader.copy.get());
    pipeline.passed(*reader.ticket, reader.block);
  }
  transfers_.offer(to, Transfers::Kind::kWeights, reader.ticket->version, reader.copy.get());
  reader.ticket.reset();
  return true;
}

// ------------------------------------------------------------------------------------------------ the coordinator

void Served::coordinate(Rank from, const messages::Push& push) {
  decisions_.clear();
  known(ledger_).push(known(layout_.worker_of(from)), static_cast<Ledger::Kind>(push.kind), push.version,
                      engine_->transport().now(), decisions_);
  publish();
}

void Served::publish() {
  for (const Worker w : decisions_.missing) {
    engine_->warn("parameter server '" + name() + "': " + list_ranks({options_.workers[w]}) +
                  " has stopped pushing while others wait: it is left out until it pushes again.");
  }
  for (const Step& step : decisions_.steps) tell_servers(step);
  for (const Release& release : decisions_.releases) {
    const Outcome& o = release.outcome;
    const Rank to = options_.workers[release.worker];
    const messages::Release message{o.clock, o.version, o.staleness, o.used ? 1U : 0U};
    if (to == rank()) {
      take_release(message);
    } else {
      mailbox().send(to, message);
      notify(to);  // wakes a sleeping rank of this node; ranks of other nodes do not sleep for long
    }
  }
}

/// Consecutive workers with the same weight share a range.
void Served::tell_servers(const Step& step) {
  std::vector<messages::PartsOf> ranges;
  for (const Part& part : step.parts) {
    const auto worker = static_cast<std::uint32_t>(part.worker);
    const auto weight = std::bit_cast<std::uint64_t>(part.weight);
    if (!ranges.empty() && ranges.back().last + 1 == worker && ranges.back().weight == weight) {
      ++ranges.back().last;
    } else {
      ranges.push_back({worker, worker, weight});
    }
  }
  for (const Rank to : options_.servers) {
    if (to == rank()) {
      known(executor_).add(step);
      continue;
    }
    constexpr std::size_t kMost = mailbox::kLongestTail<messages::Parts>;
    for (std::size_t first = 0; first < ranges.size(); first += kMost) {
      const std::size_t count = std::min(kMost, ranges.size() - first);
      mailbox().send(to, messages::Parts{}, std::span(ranges).subspan(first, count));
    }
    mailbox().send(to,
                   messages::Step{static_cast<std::uint32_t>(step.worker), flags_of(step), step.clock, step.update});
  }
}

void Served::note_closed(Rank from) {
  closed_ranks_.insert(from);
  if (!ledger_) return;
  if (const auto worker = layout_.worker_of(from)) {
    decisions_.clear();
    known(ledger_).leave(*worker, engine_->transport().now(), decisions_);
    publish();
  }
  if (!have_all_closed()) return;
  all_closed_ = true;
  for (Rank r = 0; r < engine_->size(); ++r) {
    if (r != rank()) mailbox().send(r, messages::AllClosed{});
  }
}

void Served::say_awaited(Rank to) {
  const std::vector<Rank> ranks = awaited_ranks();
  std::vector<std::uint32_t> all(ranks.begin(), ranks.end());
  constexpr std::size_t kMost = mailbox::kLongestTail<messages::Awaited>;
  for (std::size_t first = 0; first < all.size(); first += kMost) {
    mailbox().send(to, messages::Awaited{0}, std::span(all).subspan(first, std::min(kMost, all.size() - first)));
  }
  mailbox().send(to, messages::Awaited{1}, {});
}

std::vector<Rank> Served::awaited_ranks() {
  std::vector<Rank> ranks;
  for (const Worker w : known(ledger_).awaited()) ranks.push_back(options_.workers[w]);
  return ranks;
}

void Served::say_counts(Rank to) {
  const std::span<const std::byte> all = known(ledger_).memory();
  std::vector<std::uint64_t> words(all.size() / sizeof(std::uint64_t));
  std::memcpy(words.data(), all.data(), all.size());
  constexpr std::size_t kMost = mailbox::kLongestTail<messages::CountsPiece>;
  for (std::size_t first = 0; first < words.size(); first += kMost) {
    const std::size_t count = std::min(kMost, words.size() - first);
    mailbox().send(to, messages::CountsPiece{first}, std::span(words).subspan(first, count));
  }
}

// ------------------------------------------------------------------------------------------------ messages

void Served::take_release(const messages::Release& release) {
  outcome_ = {release.clock, release.version, release.staleness, release.used != 0};
  released_.store(release.clock, std::memory_order_release);
}

void Served::receive(Rank from, ConstBytes bytes) {
  const auto receive = Handlers{
      [this](Rank by, const messages::Push& push) { coordinate(by, push); },
      [this](Rank by, const messages::Leave&) {
        decisions_.clear();
        known(ledger_).leave(known(layout_.worker_of(by)), engine_->transport().now(), decisions_);
        publish();
      },
      [this](Rank, const messages::Parts&, std::span<const messages::PartsOf> tail) {
        for (const messages::PartsOf& range : tail) {
          for (std::uint32_t w = range.first; w <= range.last; ++w) {
            parts_.push_back({w, std::bit_cast<double>(range.weight)});
          }
        }
      },
      [this](Rank, const messages::Step& step) {
        known(executor_).add({.worker = step.worker,
                              .clock = step.clock,
                              .use = (step.flags & kUse) != 0,
                              .adds = (step.flags & kAdds) != 0,
                              .next = (step.flags & kNext) != 0,
                              .turn = (step.flags & kTurn) != 0,
                              .keep = (step.flags & kKeep) != 0,
                              .update = step.update,
                              .parts = std::exchange(parts_, {})});
      },
      [this](Rank, const messages::Release& release) { take_release(release); },
      [this](Rank by, const messages::Pull& pull) {
        Reader& reader = readers_[by];
        reader.wants = true;
        reader.version = pull.version;
        reader.clock = pull.clock;
      },
      [this](Rank by, const messages::Offer& offer) {
        const auto kind = static_cast<Transfers::Kind>(offer.kind);
        if (kind == Transfers::Kind::kGradient) {
          offers_[by] = offer.number;
        } else {
          std::byte* const into = part(incoming_.get(), known(layout_.shard_of(by)), layout_.element_bytes());
          transfers_.accept(by, kind, offer.number, into);
        }
      },
      [this](Rank by, const messages::Accept& accept) {
        transfers_.accepted(by, static_cast<Transfers::Kind>(accept.kind));
      },
      [this](Rank by, const messages::Closed&) { note_closed(by); },
      [this](Rank by, const messages::Failed&) { failed_ = by; },
      [this](Rank, const messages::AllClosed&) { all_closed_ = true; },
      [this](Rank by, const messages::Ask&) { say_awaited(by); },
      [this](Rank, const messages::Awaited& awaited, std::span<const std::uint32_t> tail) {
        for (const std::uint32_t r : tail) awaited_.push_back(static_cast<Rank>(r));
        awaited_is_known_ = awaited.final != 0;
      },
      [this](Rank by, const messages::AskCounts&) { say_counts(by); },
      [this](Rank, const messages::CountsPiece& piece, std::span<const std::uint64_t> tail) {
        const auto all = std::as_bytes(tail);
        if (piece.first == 0) counts_.clear();
        if (counts_.size() != piece.first * sizeof(std::uint64_t)) return;  // of an answer that no call waits for
        counts_.insert(counts_.end(), all.begin(), all.end());
      },
  };
  Messages::deliver(from, bytes, receive);
}

// ------------------------------------------------------------------------------------------------ closing

void Served::tell_closed() {
  ParameterServer::tell_closed();
  for (Rank r = 0; r < engine_->size(); ++r) {
    if (r != rank()) mailbox().send(r, messages::Closed{});
  }
  note_closed(rank());
}

}  // namespace pyc::server
