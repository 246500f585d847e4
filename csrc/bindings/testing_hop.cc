// In _testing: the worker of one rank of Hop. A test drives its neighbors.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/testing.h"
#include "memory/memory.h"
#include "node/shared_memory.h"
#include "services/hop/worker.h"

namespace pyc {
namespace {

/// Neighbors in the iterations that a test sets, which have sent everything that the worker waits for, so that its
/// rules of waiting never block it.
class DrivenNeighbors final : public HopLinks {
 public:
  DrivenNeighbors(const HopOptions& options, Rank rank)
      : senders_(options.in_of(rank).size()),
        memory_(SharedMemory::create_private(
            std::max<std::size_t>(UpdateQueue::bytes(senders_, options.sub_queues(), options.update_bytes()), 1))),
        updates_(memory_->data(), senders_, options.sub_queues(), options.update_bytes()) {}

  void send(Iteration iter) {
    for (std::size_t sender = 0; sender < senders_; ++sender) {
      updates_.end_enqueue(sender, updates_.begin_enqueue(sender, iter), iter);
    }
  }
  void enter(Rank rank, Iteration iter) { iterations_[rank] = iter; }
  void leave(Rank rank, Iteration from) { left_[rank] = from; }

  UpdateQueue& updates() override { return updates_; }
  void enqueue(Rank, Iteration, const std::byte*) override {}
  bool can_enqueue(Iteration) const override { return true; }
  bool is_sending(Rank, Iteration) const override { return false; }
  Iteration tokens(Rank) const override { return kNeverIteration; }
  void remove_tokens(Rank, Iteration) override {}
  void insert_tokens(Rank, Iteration, Iteration) override {}
  void entered(Iteration) override {}
  void acknowledge(Iteration) override {}
  Iteration iteration(Rank of) const override { return said(iterations_, of, 0); }
  Iteration reduced(Rank) const override { return kNeverIteration; }
  Iteration left(Rank by) const override { return said(left_, by, kNeverIteration); }

 private:
  static Iteration said(const std::map<Rank, Iteration>& of, Rank rank, Iteration if_nothing) {
    const auto found = of.find(rank);
    return found == of.end() ? if_nothing : found->second;
  }

  std::size_t senders_;
  std::shared_ptr<SharedMemory> memory_;
  UpdateQueue updates_;
  std::map<Rank, Iteration> iterations_, left_;
};

/// The worker of rank 0.
class LoneHopWorker {
 public:
  explicit LoneHopWorker(HopOptions options)
      : options_(std::move(options)),
        neighbors_(options_, 0),
        worker_(options_, host_memory(), 0, reinterpret_cast<std::byte*>(&model_), neighbors_) {}

  DrivenNeighbors& neighbors() { return neighbors_; }
  /// Ends the current iteration, if any, and begins the next one. Returns its number.
  Iteration go_on() {
    if (worker_.computes()) {
      neighbors_.send(worker_.iteration());
      worker_.step(reinterpret_cast<const std::byte*>(&delta_));
    }
    worker_.enter(kNeverIteration - 1);
    return worker_.iteration();
  }

 private:
  const HopOptions options_;
  const double delta_ = 0;
  double model_ = 0;
  DrivenNeighbors neighbors_;
  HopWorker worker_;
};

std::unique_ptr<LoneHopWorker> lone_hop_worker(std::vector<Rank> in, std::vector<Rank> out, Iteration max_ig,
                                               std::vector<std::uint64_t> backup, std::optional<Iteration> staleness,
                                               bool acks, bool checks) {
  return std::make_unique<LoneHopWorker>(HopOptions{.name = "driven",
                                                    .count = 1,
                                                    .type = DataType::kFloat64,
                                                    .max_ig = max_ig,
                                                    .backup = std::move(backup),
                                                    .staleness = staleness,
                                                    .acks = acks,
                                                    .skip = {},
                                                    .serial = false,
                                                    .checks = checks,
                                                    .tokens = {},
                                                    .in = {std::move(in)},
                                                    .out = {std::move(out)}});
}

}  // namespace

void bind_testing_hop(py::module_& t) {
  using Worker = LoneHopWorker;
  py::class_<Worker>(t, "LoneHopWorker")
      .def(py::init(&lone_hop_worker), py::kw_only(), py::arg("in_neighbors"), py::arg("out_neighbors"),
           py::arg("max_ig"), py::arg("backup"), py::arg("staleness"), py::arg("acks"), py::arg("checks") = true)
      .def("go_on", &Worker::go_on)
      .def(
          "enter", [](Worker& w, Rank rank, Iteration iter) { w.neighbors().enter(rank, iter); }, py::arg("rank"),
          py::arg("iter"))
      .def(
          "leave", [](Worker& w, Rank rank, Iteration from) { w.neighbors().leave(rank, from); }, py::arg("rank"),
          py::arg("iter"));
}

}  // namespace pyc
