// The creation of a pairwise averaging.
#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/error.h"
#include "services/neighbor_averaging/device_models.h"
#include "services/neighbor_averaging/host_models.h"
#include "services/neighbor_averaging/pairwise_averaging.h"

namespace pyc {

std::shared_ptr<PairwiseAveraging> PairwiseAveraging::create(std::shared_ptr<Engine> engine, Memory& memory,
                                                             Options options, const std::byte* initial,
                                                             const Nodes& nodes, Seconds timeout,
                                                             const Engine::Interrupt& interrupt) {
  std::shared_ptr<PairwiseAveraging> made(new PairwiseAveraging(*engine, memory, std::move(options), nodes));
  const OnNode on_node = made->on_host(initial);
  return created(std::move(engine), std::move(made), on_node, timeout, interrupt);
}

std::shared_ptr<PairwiseAveraging> PairwiseAveraging::create_on_device(std::shared_ptr<Engine> engine,
                                                                       const OpenDevice& open_device, Options options,
                                                                       const std::byte* initial, const Nodes& nodes,
                                                                       Seconds timeout,
                                                                       const Engine::Interrupt& interrupt) {
  Engine& e = *engine;
  std::shared_ptr<PairwiseAveraging> made(new PairwiseAveraging(e, host_memory(), std::move(options), nodes));
  PairwiseAveraging& m = *made;
  const std::size_t ranks = nodes.neighbours(e.rank()).size();
  const OnNode on_node{
      .bytes = ranks * ModelBoard::bytes(shape_of(m.options_)) + ArenaSeats::bytes(ranks),
      .make = [&](const std::shared_ptr<std::byte>& shared) { m.make_on_device(shared, open_device(), initial); },
      .complete = [&] { map_together(e, m.what_is_made(), *m.device_, timeout, interrupt); }};
  return created(std::move(engine), std::move(made), on_node, timeout, interrupt);
}

std::shared_ptr<PairwiseAveraging> PairwiseAveraging::join(std::shared_ptr<Engine> engine, Memory& memory,
                                                           Options options, const std::byte* initial,
                                                           const Nodes& nodes, std::shared_ptr<SharedMemory>& shared) {
  std::shared_ptr<PairwiseAveraging> made(new PairwiseAveraging(*engine, memory, std::move(options), nodes));
  const OnNode on_node = made->on_host(initial);
  return joined(std::move(engine), std::move(made), on_node, shared);
}

PairwiseAveraging::PairwiseAveraging(Engine& engine, Memory& memory, Options options, const Nodes& nodes)
    : Service(engine, nodes, "pairwise averaging", options.name),
      memory_(memory),
      options_(std::move(options)),
      elements_(elements_of(options_.type, ReduceOp::kSum)),
      choice_(options_.neighbors, options_.random, options_.seed ^ mix(static_cast<std::uint64_t>(engine.rank()))),
      refusal_rest_(kFirstRefusalRest),
      random_(mix(options_.seed) ^ static_cast<std::uint64_t>(engine.rank())),
      gone_(static_cast<std::size_t>(engine.size())),
      device_failed_(static_cast<std::size_t>(engine.size())),
      told_(static_cast<std::size_t>(engine.size())) {}

PairwiseAveraging::~PairwiseAveraging() = default;

std::size_t PairwiseAveraging::held_count(const Options& options) {
  return std::max<std::size_t>(options.count + (options.by_frequency ? Importance::kNumbers : 0), 1);
}

ModelShape PairwiseAveraging::shape_of(const Options& options) {
  const DataType type = elements_of(options.type, ReduceOp::kSum).accumulator;
  const std::size_t count = held_count(options);
  const std::size_t segment = options.segment_bytes == 0 ? count : options.segment_bytes / size_of(type);
  return {count, type, std::clamp<std::size_t>(segment, 1, count), options.acceleration};
}

Service::OnNode PairwiseAveraging::on_host(const std::byte* initial) {
  const ModelShape shape = shape_of(options_);
  return {.bytes = nodes_.neighbours(rank()).size() * (ModelBoard::bytes(shape) + HostModels::bytes(shape)),
          .make = [this, initial](const std::shared_ptr<std::byte>& shared) { make_on_host(shared, initial); }};
}

void PairwiseAveraging::check(Engine& engine, const Options& options) {
  MessageAverage::check(shape_of(options), engine.transport().max_tag());
}

void PairwiseAveraging::make_on_host(const std::shared_ptr<std::byte>& shared, const std::byte* initial) {
  const ModelShape shape = shape_of(options_);
  const std::size_t board_bytes = ModelBoard::bytes(shape);
  std::vector<std::shared_ptr<std::byte>> boards;
  std::vector<std::shared_ptr<std::byte>> models;
  for (std::size_t local = 0; local < nodes_.neighbours(rank()).size(); ++local) {
    boards.emplace_back(shared, shared.get() + local * (board_bytes + HostModels::bytes(shape)));
    models.emplace_back(shared, boards.back().get() + board_bytes);
  }
  const std::size_t local = nodes_.local_rank_of(rank());
  make_board(std::make_unique<HostModels>(memory_, shape, std::move(models), local), std::move(boards), initial);
}

void PairwiseAveraging::make_on_device(const std::shared_ptr<std::byte>& shared, std::shared_ptr<Executor> executor,
                                       const std::byte* initial) {
  const ModelShape shape = shape_of(options_);
  const std::size_t ranks = nodes_.neighbours(rank()).size();
  std::vector<std::shared_ptr<std::byte>> boards;
  for (std::size_t local = 0; local < ranks; ++local) {
    boards.emplace_back(shared, shared.get() + local * ModelBoard::bytes(shape));
  }
  const std::shared_ptr<std::byte> seats(shared, shared.get() + ranks * ModelBoard::bytes(shape));
  auto models = std::make_unique<DeviceModels>(std::move(executor), shape, seats, ranks, nodes_.local_rank_of(rank()));
  device_ = models.get();
  make_board(std::move(models), std::move(boards), initial);
}

void PairwiseAveraging::make_board(std::unique_ptr<Models> models, std::vector<std::shared_ptr<std::byte>> boards,
                                   const std::byte* initial) {
  models_ = std::move(models);
  board_ = std::make_unique<ModelBoard>(*models_, shape_of(options_), std::move(boards), nodes_.local_rank_of(rank()));
  board_->assign(elements_, options_.count, initial);
  if (has_neighbors_elsewhere()) sent_ = models_->make_values();
}

bool PairwiseAveraging::has_neighbors_elsewhere() const {
  const std::vector<Rank>& all = choice_.all();
  return std::any_of(all.begin(), all.end(), [this](Rank r) { return !is_local(r); });
}

void PairwiseAveraging::open() {
  mailbox_ = std::make_unique<PairwiseMailbox>(*engine_, id());
  if (!has_neighbors_elsewhere()) return;
  messages_ = std::make_unique<MessageAverage>(*engine_, memory_, id(), *mailbox_, *board_, sent_);
}

}  // namespace pyc
