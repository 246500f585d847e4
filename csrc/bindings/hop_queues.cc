// The queues of Hop on their own.
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/calls.h"
#include "bindings/one_thread.h"
#include "bindings/protocol.h"
#include "services/hop/token_queue_collective.h"
#include "services/hop/update_queue_collective.h"

namespace pyc {
namespace {

/// A graph with an edge from each of `senders` to `owner`.
HopOptions options_of(std::string name, std::size_t count, DataType type, Iteration max_ig, Rank owner,
                      std::vector<Rank> senders, Rank size) {
  HopOptions options{.name = std::move(name),
                     .count = count,
                     .type = type,
                     .max_ig = max_ig,
                     .staleness = {},
                     .skip = {},
                     .tokens = {},
                     .in = std::vector<std::vector<Rank>>(static_cast<std::size_t>(size)),
                     .out = std::vector<std::vector<Rank>>(static_cast<std::size_t>(size))};
  for (const Rank sender : senders) options.out[static_cast<std::size_t>(sender)].push_back(owner);
  options.in[static_cast<std::size_t>(owner)] = std::move(senders);
  return options;
}

class BoundUpdateQueue {
 public:
  using Kind = UpdateQueueCollective;
  using Copied = std::tuple<py::array_t<std::uint8_t>, Iteration, Rank>;

  BoundUpdateQueue(std::shared_ptr<Engine> engine, HopOptions options, Rank owner, const Nodes& nodes,
                   Seconds timeout) {
    const GilReleased released;
    queue_ =
        Kind::create(std::move(engine), host_memory(), std::move(options), owner, nodes, timeout, run_signal_handlers);
  }

  void enqueue(const py::buffer& update, Iteration iter, const py::object& timeout) {
    const OneThread one(in_use_, queue_->name());
    const py::buffer_info memory = requested(update, false, queue_->name(), queue_->options().count);
    const Seconds limit = timeout_from(timeout);
    const GilReleased released;
    queue_->enqueue(static_cast<const std::byte*>(memory.ptr), iter, limit, run_signal_handlers);
  }

  std::vector<Copied> dequeue(std::size_t m, std::optional<Iteration> iter, std::optional<Rank> sender,
                              const py::object& timeout) {
    const OneThread one(in_use_, queue_->name());
    const Seconds limit = timeout_from(timeout);
    const std::size_t bytes = queue_->options().bytes();
    std::vector<Copied> all;
    const auto take = [&](const Kind::Update& update) {
      const GilHeld held;
      py::array_t<std::uint8_t> copy(static_cast<py::ssize_t>(bytes));
      if (bytes > 0) std::memcpy(copy.mutable_data(), update.values, bytes);
      all.emplace_back(std::move(copy), update.iter, update.sender);
    };
    {
      const GilReleased released;
      queue_->dequeue(m, {iter, sender}, take, limit, run_signal_handlers);
    }
    return all;
  }

  Kind& operator*() { return *queue_; }

 private:
  std::shared_ptr<Kind> queue_;
  std::atomic_flag in_use_;
};

class BoundTokenQueue {
 public:
  using Kind = TokenQueueCollective;

  BoundTokenQueue(std::shared_ptr<Engine> engine, HopOptions options, Rank owner, Rank taker, const Nodes& nodes,
                  Seconds timeout) {
    const GilReleased released;
    queue_ = Kind::create(std::move(engine), host_memory(), std::move(options), owner, taker, nodes, timeout,
                          run_signal_handlers);
  }

  void dequeue(Iteration tokens, const py::object& timeout) {
    const OneThread one(in_use_, queue_->name());
    const Seconds limit = timeout_from(timeout);
    const GilReleased released;
    queue_->dequeue(tokens, limit, run_signal_handlers);
  }

  Kind& operator*() { return *queue_; }

 private:
  std::shared_ptr<Kind> queue_;
  std::atomic_flag in_use_;
};

}  // namespace

void bind_hop_queues(py::module_& m) {
  const py::class_<BoundUpdateQueue> update_queue(m, "UpdateQueue", py::is_final());
  ClassDefinitions(update_queue)
      .constructor("engine, *, owner, senders, dtype_name, count, max_ig, nodes, timeout=None, name",
                   [](std::shared_ptr<Engine> engine, Rank owner, std::vector<Rank> senders,
                      const std::string& dtype_name, std::size_t count, Iteration max_ig, std::vector<Rank> nodes,
                      const py::object& timeout, std::string name) {
                     const Rank size = engine->size();
                     return std::make_unique<BoundUpdateQueue>(std::move(engine),
                                                               options_of(std::move(name), count, data_type(dtype_name),
                                                                          max_ig, owner, std::move(senders), size),
                                                               owner, Nodes(std::move(nodes)), timeout_from(timeout));
                   })
      .method<&BoundUpdateQueue::enqueue>("enqueue", "update, iteration, *, timeout=None")
      .method<&BoundUpdateQueue::dequeue>("dequeue", "m, iteration, sender, *, timeout=None")
      .method("size", "iteration, sender",
              [](BoundUpdateQueue& b, std::optional<Iteration> iteration, std::optional<Rank> sender) {
                return (*b).size({iteration, sender});
              })
      .method("statistics", "", [](BoundUpdateQueue& b) { return common_statistics(*b); })
      .property("rings", [](BoundUpdateQueue& b) { return (*b).notified(); });
  define_protocol<BoundUpdateQueue>(Definitions(update_queue));
  define_leave<BoundUpdateQueue>(Definitions(update_queue));
  const py::class_<BoundTokenQueue> token_queue(m, "TokenQueue", py::is_final());
  ClassDefinitions(token_queue)
      .constructor("engine, *, owner, taker, tokens, nodes, timeout=None, name",
                   [](std::shared_ptr<Engine> engine, Rank owner, Rank taker, Iteration tokens, std::vector<Rank> nodes,
                      const py::object& timeout, std::string name) {
                     HopOptions options =
                         options_of(std::move(name), 0, DataType::kUint8, 1, owner, {taker}, engine->size());
                     options.tokens = tokens;
                     return std::make_unique<BoundTokenQueue>(std::move(engine), std::move(options), owner, taker,
                                                              Nodes(std::move(nodes)), timeout_from(timeout));
                   })
      .method("enqueue", "tokens",
              [](BoundTokenQueue& b, Iteration tokens) {
                const GilReleased released;
                (*b).enqueue(tokens);
              })
      .method<&BoundTokenQueue::dequeue>("dequeue", "tokens, *, timeout=None")
      .method("size", "", [](BoundTokenQueue& b) { return (*b).size(); })
      .method("statistics", "", [](BoundTokenQueue& b) { return common_statistics(*b); })
      .property("rings", [](BoundTokenQueue& b) { return (*b).notified(); });
  define_protocol<BoundTokenQueue>(Definitions(token_queue));
  define_leave<BoundTokenQueue>(Definitions(token_queue));
}

}  // namespace pyc
