// Averages with neighbors, step by step: D-PSGD (Lian et al. 2017) and SGP (Assran et al. 2019), as the application of
// one rank sees it.
//
// In each step a rank shows its values to its out-neighbors and takes its in-neighbors' values, on its node from shared
// memory (neighborhood_board.h), on other nodes by messages (neighborhood_edges.h). Once all have arrived, the thread
// that drives the engine computes the sum: first this rank's own values, then its neighbors' in ascending order. The
// bits therefore do not depend on the order of arrival or on the nodes.
//
// A rank that leaves takes part in no step that it has not begun. Its neighbors continue:
//   D-PSGD    Ranks that would have taken its values add its weight to their own. Weights still sum to one, and with a
//             symmetric matrix the columns do too, so the mean of the remaining ranks does not change.
//   push-sum  Ranks that would have given values to it keep them, and take them back before their buffer is reused.
//             The sums of values and weights over all ranks, including the leaver's, do not change.
// The ranks in a step depend on how many steps each rank begins, not on time, so results are reproducible.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/common/service.h"
#include "services/neighbor_averaging/neighborhood_board.h"
#include "services/neighbor_averaging/neighborhood_edges.h"
#include "services/neighbor_averaging/neighborhood_model.h"
#include "services/neighbor_averaging/neighborhood_options.h"

namespace pyc {

class Neighborhood final : public Service {
 public:
  using Options = NeighborhoodOptions;

  /// Collective over the engine's ranks. The ranks of a node must share a machine. StallError as `Engine::compare`;
  /// std::runtime_error on all ranks if memory cannot be allocated on one. The result keeps the engine alive.
  static std::shared_ptr<Neighborhood> create(std::shared_ptr<Engine> engine, Memory& memory, Options options,
                                              const Nodes& nodes, Seconds timeout, const Engine::Interrupt& interrupt);

  // ---- the application: one thread at a time

  /// Begins the next step with a copy of `values`. Never waits. std::runtime_error if the previous step was not waited
  /// for.
  void start(const std::byte* values);
  /// out = this rank's values after the step. StallError after `timeout` seconds (negative: unlimited) names the
  /// missing neighbors; the call may be repeated.
  void wait(std::byte* out, Seconds timeout, const Engine::Interrupt& interrupt);
  /// Whether `wait` would return at once.
  bool test();
  /// out = the result of `wait`, plus the values under way to this rank: its part of the sum over all ranks. Changes
  /// nothing. May be called after `close`.
  void final(std::byte* out, Seconds timeout, const Engine::Interrupt& interrupt);
  // After `close` no step begins, and the engine receives the values under way to this rank.

  const Options& options() const { return options_; }
  std::uint64_t steps() const { return begun_; }
  /// The push-sum weight of the last result of `wait` or `final`.
  double weight() const { return weight_; }

  // ---- Collective

  bool advance() override;
  bool busy() const override;
  bool in_background() const override {
    return is_averaging() || is_asked() || (closed() && !(settled_ && edges_->finished()));
  }
  bool finished() const override { return settled_ && not_closed().empty() && edges_->finished(); }
  std::vector<Rank> not_closed() const override;

 private:
  Neighborhood(Engine& engine, Memory& memory, Options options, const Nodes& nodes);

  void make(std::shared_ptr<std::byte> memory);
  void open() override;
  void tell_closed() override;
  void receive(Rank from, ConstBytes message) override;
  std::optional<Report> progress(std::uint64_t step) const override;

  bool is_averaging() const { return averaged_.load(std::memory_order_acquire) != begun_; }
  bool is_asked() const;
  std::optional<std::uint64_t> step_of_input() const;
  std::optional<std::uint64_t> step_of_return() const;
  std::uint64_t first_not_returned() const;

  void take(std::uint64_t step);
  void notify_all(const std::vector<Neighbor>& neighbors) const;
  void begin_step();
  void end_step();
  void settle();

  Input input(Rank from, std::uint64_t step) const;
  const std::byte* values_of(const std::vector<Neighbor>& in, std::size_t which, std::uint64_t step) const;
  bool has_read(Rank rank, std::uint64_t step) const;
  bool has_begun(Rank rank, std::uint64_t step) const;
  bool has_left(Rank rank, std::uint64_t step) const;
  void add_inputs(std::uint64_t step, std::vector<Term>& terms, double& absent) const;
  void add_returns(std::uint64_t step, std::vector<Term>& terms) const;
  std::vector<Term> terms_of_step() const;
  std::vector<Term> in_flight() const;

  std::vector<Awaited> awaited_by_step() const;
  std::vector<Awaited> awaited_by_final() const;
  bool can_read(bool final) const;
  void read(const std::string& what, bool final, std::byte* out, Seconds timeout, const Engine::Interrupt& interrupt);
  bool sleep(const std::function<std::vector<Awaited>()>& awaited, const std::function<bool()>& done,
             Seconds limit) const;

  Memory& memory_;
  const Options options_;
  const std::vector<Rank> neighbors_;
  std::unique_ptr<NeighborhoodBoard> board_;
  std::unique_ptr<NeighborhoodEdges> edges_;
  std::unique_ptr<NeighborhoodModel> model_;  // made with the board
  std::vector<BufferPtr> incoming_;           // values of in-neighbors on other nodes, for the step taken last

  std::atomic<std::uint64_t> begun_{0};     // steps
  std::atomic<std::uint64_t> averaged_{0};  // ... whose sum is done
  std::uint64_t given_ = 0;                 // ... whose result the application has
  double weight_ = 1;
  bool is_reading_ = false;           // `advance` must not change the model
  std::vector<Term> terms_;           // of the sum that is being computed
  std::atomic<bool> settled_{false};  // closed, and the model is final
};

}  // namespace pyc
