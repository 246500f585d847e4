// A pairwise averaging until its first call: what its ranks make together.
#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/error.h"
#include "services/common/creation.h"
#include "services/common/node_memory.h"
#include "services/neighbor_averaging/device_models.h"
#include "services/neighbor_averaging/host_models.h"
#include "services/neighbor_averaging/pairwise_averaging.h"

namespace pyc {

std::shared_ptr<PairwiseAveraging> PairwiseAveraging::create(std::shared_ptr<Engine> engine, Memory& memory,
                                                             Options options, const std::byte* initial,
                                                             const Nodes& nodes, Seconds timeout,
                                                             const Engine::Interrupt& interrupt) {
  Engine& e = *engine;
  const std::size_t bytes = bytes_of_node(options, nodes, e.rank());
  std::shared_ptr<PairwiseAveraging> made(new PairwiseAveraging(e, memory, std::move(options), nodes));
  share_memory(
      e, nodes, bytes, made->what_is_made(),
      [&](const std::shared_ptr<SharedMemory>& shared) { made->make_on_host(shared, initial); }, timeout, interrupt);
  return enroll(std::move(engine), std::move(made));
}

std::shared_ptr<PairwiseAveraging> PairwiseAveraging::create_on_device(std::shared_ptr<Engine> engine,
                                                                       const OpenDevice& open, Options options,
                                                                       const std::byte* initial, const Nodes& nodes,
                                                                       Seconds timeout,
                                                                       const Engine::Interrupt& interrupt) {
  Engine& e = *engine;
  const std::size_t ranks = nodes.neighbours(e.rank()).size();
  const std::size_t bytes = ranks * ModelBoard::bytes(shape_of(options)) + ArenaSeats::bytes(ranks);
  std::shared_ptr<PairwiseAveraging> made(new PairwiseAveraging(e, host_memory(), std::move(options), nodes));
  const std::string what = made->what_is_made();
  const auto prepare = [&](const std::shared_ptr<SharedMemory>& shared) {
    made->make_on_device(shared, open(), initial);
  };
  share_memory(e, nodes, bytes, what, prepare, timeout, interrupt);
  map_together(e, what, *made->device_, timeout, interrupt);
  return enroll(std::move(engine), std::move(made));
}

std::shared_ptr<PairwiseAveraging> PairwiseAveraging::join(std::shared_ptr<Engine> engine, Memory& memory,
                                                           Options options, const std::byte* initial,
                                                           const Nodes& nodes,
                                                           const std::shared_ptr<SharedMemory>& shared) {
  std::shared_ptr<PairwiseAveraging> made(new PairwiseAveraging(*engine, memory, std::move(options), nodes));
  made->make_on_host(shared, initial);
  return enroll(std::move(engine), std::move(made));
}

std::shared_ptr<PairwiseAveraging> PairwiseAveraging::enroll(std::shared_ptr<Engine> engine,
                                                             std::shared_ptr<PairwiseAveraging> made) {
  PairwiseAveraging& m = *made;
  return pyc::enroll(std::move(engine), std::move(made), [&](std::uint32_t id) { m.set_id(id); });
}

PairwiseAveraging::PairwiseAveraging(Engine& engine, Memory& memory, Options options, const Nodes& nodes)
    : engine_(&engine),
      memory_(memory),
      options_(std::move(options)),
      elements_(elements_of(options_.type, ReduceOp::kSum)),
      nodes_(nodes),
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

std::size_t PairwiseAveraging::bytes_of_node(const Options& options, const Nodes& nodes, Rank rank) {
  const ModelShape shape = shape_of(options);
  return nodes.neighbours(rank).size() * (ModelBoard::bytes(shape) + HostModels::bytes(shape));
}

void PairwiseAveraging::check(Engine& engine, const Options& options) {
  MessageAverage::check(shape_of(options), engine.transport().max_tag());
}

std::string PairwiseAveraging::what_is_made() const { return "the memory of '" + options_.name + "'"; }

void PairwiseAveraging::make_on_host(const std::shared_ptr<SharedMemory>& shared, const std::byte* initial) {
  const ModelShape shape = shape_of(options_);
  const std::size_t board_bytes = ModelBoard::bytes(shape);
  std::vector<std::shared_ptr<std::byte>> boards;
  std::vector<std::shared_ptr<std::byte>> models;
  for (std::size_t local = 0; local < nodes_.neighbours(engine_->rank()).size(); ++local) {
    boards.emplace_back(shared, shared->data() + local * (board_bytes + HostModels::bytes(shape)));
    models.emplace_back(shared, boards.back().get() + board_bytes);
  }
  const std::size_t local = nodes_.local_rank_of(engine_->rank());
  make_board(std::make_unique<HostModels>(memory_, shape, std::move(models), local), std::move(boards), initial);
}

void PairwiseAveraging::make_on_device(const std::shared_ptr<SharedMemory>& shared, std::shared_ptr<Executor> executor,
                                       const std::byte* initial) {
  const ModelShape shape = shape_of(options_);
  const std::size_t ranks = nodes_.neighbours(engine_->rank()).size();
  std::vector<std::shared_ptr<std::byte>> boards;
  for (std::size_t local = 0; local < ranks; ++local) {
    boards.emplace_back(shared, shared->data() + local * ModelBoard::bytes(shape));
  }
  const std::shared_ptr<std::byte> seats(shared, shared->data() + ranks * ModelBoard::bytes(shape));
  auto models =
      std::make_unique<DeviceModels>(std::move(executor), shape, seats, ranks, nodes_.local_rank_of(engine_->rank()));
  device_ = models.get();
  make_board(std::move(models), std::move(boards), initial);
}

void PairwiseAveraging::make_board(std::unique_ptr<Models> models, std::vector<std::shared_ptr<std::byte>> boards,
                                   const std::byte* initial) {
  models_ = std::move(models);
  board_ = std::make_unique<ModelBoard>(*models_, shape_of(options_), std::move(boards),
                                        nodes_.local_rank_of(engine_->rank()));
  board_->assign(elements_, options_.count, initial);
  if (has_neighbors_elsewhere()) sent_ = models_->make_values();
}

bool PairwiseAveraging::has_neighbors_elsewhere() const {
  const std::vector<Rank>& all = choice_.all();
  return std::any_of(all.begin(), all.end(), [this](Rank rank) { return !is_on_node(rank); });
}

void PairwiseAveraging::set_id(std::uint32_t id) {
  id_ = id;
  mailbox_ = std::make_unique<PairwiseMailbox>(*engine_, id);
  if (!has_neighbors_elsewhere()) return;
  messages_ = std::make_unique<MessageAverage>(*engine_, memory_, id, *mailbox_, *board_, sent_);
}

}  // namespace pyc
