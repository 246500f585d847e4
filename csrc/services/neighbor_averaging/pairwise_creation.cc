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
                                                             const Engine::Interrupt& interrupt,
                                                             const OpenDevice& open_device) {
  Engine& e = *engine;
  std::shared_ptr<PairwiseAveraging> made(new PairwiseAveraging(e, memory, std::move(options), nodes));
  PairwiseAveraging& m = *made;
  OnNode on_node = m.on_node(initial, open_device);
  if (open_device) on_node.complete = [&] { map_together(e, m.what_is_made(), *m.device_, timeout, interrupt); };
  return created(std::move(engine), std::move(made), on_node, timeout, interrupt);
}

std::shared_ptr<PairwiseAveraging> PairwiseAveraging::join(std::shared_ptr<Engine> engine, Memory& memory,
                                                           Options options, const std::byte* initial,
                                                           const Nodes& nodes, std::shared_ptr<SharedMemory>& shared) {
  std::shared_ptr<PairwiseAveraging> made(new PairwiseAveraging(*engine, memory, std::move(options), nodes));
  const OnNode on_node = made->on_node(initial, {});
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

/// The shared memory has the board of each rank, with its models if they are on the host, then their ArenaSeats.
Service::OnNode PairwiseAveraging::on_node(const std::byte* initial, const OpenDevice& open_device) {
  const ModelShape shape = shape_of(options_);
  const std::size_t ranks = nodes_.neighbours(rank()).size();
  const std::size_t own_bytes = ModelBoard::bytes(shape) + (open_device ? 0 : HostModels::bytes(shape));
  return {.bytes = ranks * own_bytes + (open_device ? ArenaSeats::bytes(ranks) : 0),
          .make = [=, this](const std::shared_ptr<std::byte>& shared) {
            make_board(shared, own_bytes, open_device ? open_device() : nullptr, initial);
          }};
}

void PairwiseAveraging::check(Engine& engine, const Options& options) {
  MessageAverage::check(shape_of(options), engine.transport().max_tag());
}

void PairwiseAveraging::make_board(const std::shared_ptr<std::byte>& shared, std::size_t own_bytes,
                                   std::shared_ptr<Executor> device, const std::byte* initial) {
  const ModelShape shape = shape_of(options_);
  const std::size_t ranks = nodes_.neighbours(rank()).size();
  const std::size_t own = nodes_.local_rank_of(rank());
  std::vector<std::shared_ptr<std::byte>> boards;
  std::vector<std::shared_ptr<std::byte>> models;
  for (std::size_t local = 0; local < ranks; ++local) {
    boards.emplace_back(shared, shared.get() + local * own_bytes);
    models.emplace_back(shared, boards.back().get() + ModelBoard::bytes(shape));
  }
  if (device) {
    const std::shared_ptr<std::byte> seats(shared, shared.get() + ranks * own_bytes);
    auto on_device = std::make_unique<DeviceModels>(std::move(device), shape, seats, ranks, own);
    device_ = on_device.get();
    models_ = std::move(on_device);
  } else {
    models_ = std::make_unique<HostModels>(memory_, shape, std::move(models), own);
  }
  board_ = std::make_unique<ModelBoard>(*models_, shape, std::move(boards), own);
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
