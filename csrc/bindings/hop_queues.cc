// The queues of Hop on their own.
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/bound.h"
#include "bindings/calls.h"
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
                     .backup = {},
                     .staleness = {},
                     .skip = {},
                     .tokens = {},
                     .in = std::vector<std::vector<Rank>>(static_cast<std::size_t>(size)),
                     .out = std::vector<std::vector<Rank>>(static_cast<std::size_t>(size))};
  for (const Rank sender : senders) options.out[static_cast<std::size_t>(sender)].push_back(owner);
  options.in[static_cast<std::size_t>(owner)] = std::move(senders);
  return options;
}

class BoundUpdateQueue : public BoundCollective<UpdateQueueCollective> {
 public:
  using Kind = UpdateQueueCollective;
  using Copied = std::tuple<py::array_t<std::uint8_t>, Iteration, Rank>;

  using BoundCollective<Kind>::BoundCollective;

  void enqueue(const py::buffer& update, Iteration iter, Timeout timeout) {
    const py::buffer_info memory = memory_of(update, false);
    exclusively([&](Kind& queue) {
      queue.enqueue(static_cast<const std::byte*>(memory.ptr), iter, timeout, run_signal_handlers);
    });
  }

  std::vector<Copied> dequeue(std::size_t m, std::optional<Iteration> iter, std::optional<Rank> sender,
                              Timeout timeout) {
    std::vector<Copied> all;
    exclusively([&](Kind& queue) {
      const std::size_t bytes = queue.options().bytes();
      const auto take = [&](const Kind::Update& update) {
        const GilHeld held;
        py::array_t<std::uint8_t> copy(static_cast<py::ssize_t>(bytes));
        if (bytes > 0) std::memcpy(copy.mutable_data(), update.values, bytes);
        all.emplace_back(std::move(copy), update.iter, update.sender);
      };
      queue.dequeue(m, {iter, sender}, take, timeout, run_signal_handlers);
    });
    return all;
  }
};

}  // namespace

void bind_hop_queues(py::module_& m) {
  using Updates = BoundUpdateQueue;
  const py::class_<Updates> update_queue(m, "UpdateQueue", py::is_final());
  ClassDefinitions(update_queue)
      .constructor(
          "engine, *, owner, senders, dtype_name, count, max_ig, nodes, timeout=None, name",
          [](std::shared_ptr<Engine> engine, Rank owner, std::vector<Rank> senders, const std::string& dtype_name,
             std::size_t count, Iteration max_ig, std::vector<Rank> nodes, Timeout timeout, std::string name) {
            HopOptions options = options_of(std::move(name), count, data_type(dtype_name), max_ig, owner,
                                            std::move(senders), engine->size());
            return std::make_unique<Updates>([&] {
              return UpdateQueueCollective::create(std::move(engine), host_memory(), std::move(options), owner,
                                                   Nodes(std::move(nodes)), timeout, run_signal_handlers);
            });
          })
      .method<&Updates::enqueue>("enqueue", "update, iteration, *, timeout=None")
      .method<&Updates::dequeue>("dequeue", "m, iteration, sender, *, timeout=None")
      .method("size", "iteration, sender",
              [](Updates& b, std::optional<Iteration> iteration, std::optional<Rank> sender) {
                return (*b).size({iteration, sender});
              })
      .method("statistics", "", [](Updates& b) { return b.statistics(); })
      .property("rings", [](Updates& b) { return (*b).notified(); });
  define_protocol<Updates>(Definitions(update_queue));

  using Tokens = BoundCollective<TokenQueueCollective>;
  const py::class_<Tokens> token_queue(m, "TokenQueue", py::is_final());
  ClassDefinitions(token_queue)
      .constructor(
          "engine, *, owner, taker, tokens, nodes, timeout=None, name",
          [](std::shared_ptr<Engine> engine, Rank owner, Rank taker, Iteration tokens, std::vector<Rank> nodes,
             Timeout timeout, std::string name) {
            HopOptions options = options_of(std::move(name), 0, DataType::kUint8, 1, owner, {taker}, engine->size());
            options.tokens = tokens;
            return std::make_unique<Tokens>([&] {
              return TokenQueueCollective::create(std::move(engine), host_memory(), std::move(options), owner, taker,
                                                  Nodes(std::move(nodes)), timeout, run_signal_handlers);
            });
          })
      .method("enqueue", "tokens", [](Tokens& b, Iteration n) { without_gil([&] { (*b).enqueue(n); }); })
      .method("dequeue", "tokens, *, timeout=None",
              [](Tokens& b, Iteration n, Timeout timeout) {
                b.exclusively([=](TokenQueueCollective& q) { q.dequeue(n, timeout, run_signal_handlers); });
              })
      .method("size", "", [](Tokens& b) { return (*b).size(); })
      .method<&Tokens::statistics>("statistics", "")
      .property("rings", [](Tokens& b) { return (*b).notified(); });
  define_protocol<Tokens>(Definitions(token_queue));
}

}  // namespace pyc
