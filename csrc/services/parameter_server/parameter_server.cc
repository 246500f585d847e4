#include "services/parameter_server/parameter_server.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include "services/parameter_server/direct.h"
#include "services/parameter_server/served.h"

namespace pyc::server {

std::shared_ptr<ParameterServer> ParameterServer::create(std::shared_ptr<Engine> engine, Memory& memory,
                                                         Options options, const std::byte* weights, Update update,
                                                         const Nodes& nodes, const Limit& limit) {
  Engine& e = *engine;
  std::shared_ptr<ParameterServer> made;
  if (options.direct) {
    made = std::make_shared<Direct>(e, memory, std::move(options), std::move(update), nodes);
  } else {
    made = std::make_shared<Served>(e, memory, std::move(options), std::move(update), nodes);
  }
  ParameterServer& m = *made;
  const auto make = [&](std::shared_ptr<std::byte> shared) {
    m.board_ = std::make_unique<Board>(std::move(shared), memory, m.layout_, nodes, m.rank(), e.transport().now());
    m.start(weights);
  };
  if (m.options_.resumed && m.worker_) {
    m.clock_ = m.options_.resumed->clocks[*m.worker_];
    m.given_ = m.options_.resumed->given;
  }
  const OnNode on_node{.bytes = Board::bytes(m.layout_, nodes, m.rank()), .make = make};
  return created(std::move(engine), std::move(made), on_node, limit.timeout, limit.interrupt);
}

ParameterServer::ParameterServer(Engine& engine, Memory& memory, Options options, const Nodes& nodes)
    : Service(engine, nodes, "parameter server", options.name),
      memory_(memory),
      options_(std::move(options)),
      layout_(options_),
      worker_(layout_.worker_of(engine.rank())) {}

// ------------------------------------------------------------------------------------------------ the application

void ParameterServer::push(Kind kind, const std::byte* gradient, const Limit& limit) {
  check_open();
  check_worker();
  wait_for_turn(limit);
  const Seconds begin = track().now();
  hand_over(kind, gradient, limit);
  track().add("push", begin, clock_.load());
}

void ParameterServer::check_worker() const {
  if (!worker_) throw std::invalid_argument("'" + name() + "': this rank is no worker: it may pull, not push");
}

void ParameterServer::wait_for_turn(const Limit& limit) {
  const Clock before = clock_.load();
  if (is_released(before)) return;
  wait_for("push " + std::to_string(before + 1), [&] { return is_released(before); }, limit);
}

void ParameterServer::wait(Clock clock, const Limit& limit) {
  if (is_released(clock)) return;
  check_open();
  wait_for("push " + std::to_string(clock), [&] { return is_released(clock); }, limit);
}

void ParameterServer::pull(std::byte* out, const Limit& limit, Version least) {
  check_open();
  if (worker_) {
    const Clock clock = clock_.load();
    wait_for("pull after push " + std::to_string(clock), [&] { return is_released(clock); }, limit);
  }
  const Seconds released = track().now();
  fetch(out, limit, least);
  has_reply_ = false;
  track().add("pull", released, given_.load());
}

void ParameterServer::push_pull(Kind kind, const std::byte* gradient, std::byte* out, const Limit& limit) {
  push(kind, gradient, limit);
  pull(out, limit);
}

// ------------------------------------------------------------------------------------------------ after a death

bool ParameterServer::settle(std::vector<Rank> dead, const Limit& limit) {
  constexpr auto kPause = std::chrono::milliseconds(1);
  constexpr Seconds kLookPeriod = 0.25;
  const Transport& clock = engine_->transport();
  const Seconds end = clock.now() + limit.timeout;
  Seconds next_look = clock.now() + kLookPeriod;
  for (;;) {
    bool moved = false;
    for (std::size_t s = 0; s < layout_.shards(); ++s) {
      if (board_->shard(s) != nullptr) moved = settle_for(dead, s) || moved;
    }
    moved = settle_once() || moved;
    if (moved) continue;
    if (is_settled()) return true;
    if (clock.now() > end) return false;
    std::this_thread::sleep_for(kPause);
    limit.interrupt();
    if (clock.now() < next_look) continue;
    next_look = clock.now() + kLookPeriod;
    for (const Rank gone : dead_on_node()) {  // they may have died since
      if (std::ranges::find(dead, gone) == dead.end()) dead.push_back(gone);
    }
  }
}

/// The work of dead ranks. Updates by gradients of several workers are completed, but not by a function, which may keep
/// state. A dead worker's own gradient may be in a part of the weights.
bool ParameterServer::settle_for(const std::vector<Rank>& dead, std::size_t s) {
  Shard& shard = *board_->shard(s);
  bool moved = false;
  const auto completes = [&](std::uint64_t ticket, Rank owner, std::size_t passed) {
    if (shard.has_journal(ticket)) {
      moved = shard.complete_update(ticket, rank(), dead) || moved;
      return true;
    }
    const std::optional<Worker> worker = options_.direct ? layout_.worker_of(owner) : std::nullopt;
    if (worker) shard.clear_accumulators(*worker, passed);
    return false;
  };
  shard.pipeline().pass_for(dead, completes);
  if (!options_.direct && std::ranges::find(dead, options_.servers[s]) != dead.end()) give_up_work(s);
  return moved;
}

bool ParameterServer::is_settled() const {
  for (std::size_t s = 0; s < layout_.shards(); ++s) {
    if (board_->shard(s) != nullptr && board_->shard(s)->pipeline().slowest()) return false;
  }
  return true;
}

std::optional<ParameterServer::Included> ParameterServer::included(std::size_t shard) const {
  Shard* const held = board_->shard(shard);
  if (held == nullptr) return std::nullopt;
  const Pipeline& pipeline = held->pipeline();
  Included all{.version = pipeline.version(), .used = {}, .is_broken = pipeline.broken() != kNoRank};
  for (Worker w = 0; w < layout_.workers(); ++w) all.used.push_back(held->slot(w).used.load());
  return all;
}

// ------------------------------------------------------------------------------------------------ closing

void ParameterServer::tell_closed() {
  board_->close();
  for (const Rank r : nodes_.neighbours(rank())) notify(r);
}

// ------------------------------------------------------------------------------------------------ waiting

void ParameterServer::wait_for(const std::string& what, const std::function<bool()>& done, const Limit& limit,
                               const Obstacle& obstacle) {
  const auto attended = [&] {
    if (done()) return true;
    attend();
    return false;
  };
  const auto sleep_once = [&](Seconds longest) {
    if (!obstacle.rank) return sleep(longest, attended);
    if (!obstacle.sleep) return false;
    obstacle.sleep(longest);
    return true;
  };
  Service::wait_for({.what = what,
                     .done = attended,
                     .awaited = [] { return std::vector<Awaited>(); },
                     .find_awaited = [&] { return find_awaited(limit, obstacle); },
                     .sleep = sleep_once,
                     .if_none_is_missing = obstacle.rank ? "its process is not stopped: it is slow, call again"
                                                         : "no push is waited for: the servers are slow, call again"},
                    limit.timeout, limit.interrupt);
}

/// The ranks in the way. Work of a rank of this node is known without asking it.
std::vector<Awaited> ParameterServer::find_awaited(const Limit& limit, const Obstacle& obstacle) {
  std::vector<Awaited> all;
  if (obstacle.rank) {
    if (const std::optional<Rank> by = obstacle.rank()) {
      all.push_back({.rank = *by, .what = "the work of @ on the weights", .known = RankState::kComplete});
    }
    return all;
  }
  const std::optional<std::vector<Rank>> ranks = awaited(limit);
  if (!ranks) all.push_back({.rank = layout_.coordinator(), .what = "", .known = RankState::kSilent});
  for (const Rank r : ranks.value_or(std::vector<Rank>())) all.push_back({.rank = r, .what = "the push of @"});
  return all;
}

}  // namespace pyc::server
