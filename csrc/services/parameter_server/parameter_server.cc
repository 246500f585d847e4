#include "services/parameter_server/parameter_server.h"

#include <stdexcept>
#include <utility>

#include "core/error.h"
#include "services/common/creation.h"
#include "services/common/node_memory.h"
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
  share_memory(
      e, nodes, Board::bytes(m.layout_, nodes, e.rank()), "the memory of '" + m.name() + "'",
      [&](const std::shared_ptr<SharedMemory>& shared) { m.make_board(shared, weights); }, limit.timeout,
      limit.interrupt);
  return enroll(std::move(engine), std::move(made), [&](std::uint32_t id) { m.open(id); });
}

ParameterServer::ParameterServer(Engine& engine, Memory& memory, Options options, const Nodes& nodes)
    : engine_(&engine),
      memory_(memory),
      options_(std::move(options)),
      layout_(options_),
      nodes_(nodes),
      worker_(layout_.worker_of(engine.rank())),
      reports_(static_cast<std::size_t>(engine.size())),
      called_(engine.transport().now()) {}

/// And what else may be refused: an error here is one on all ranks.
void ParameterServer::make_board(const std::shared_ptr<SharedMemory>& shared, const std::byte* weights) {
  board_ = std::make_unique<Board>(std::shared_ptr<std::byte>(shared, shared->data()), memory_, layout_, nodes_, rank(),
                                   engine_->transport().now());
  start(weights);
}

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

void ParameterServer::pull(std::byte* out, const Limit& limit) {
  check_open();
  if (worker_) {
    const Clock clock = clock_.load();
    wait_for("pull after push " + std::to_string(clock), [&] { return is_released(clock); }, limit);
  }
  const Seconds released = track().now();
  fetch(out, limit);
  has_reply_ = false;
  track().add("pull", released, given_.load());
}

void ParameterServer::push_pull(Kind kind, const std::byte* gradient, std::byte* out, const Limit& limit) {
  push(kind, gradient, limit);
  pull(out, limit);
}

// ------------------------------------------------------------------------------------------------ the end

void ParameterServer::close() {
  engine_->check_process();
  engine_->exclusively([this] { leave_for_good(); });
  engine_->advance();
}

void ParameterServer::leave_for_good() {
  if (closed_) return;
  closed_ = true;
  engine_->recorder().left(id_);
  tell_closed();
}

}  // namespace pyc::server
