// A parameter server without servers: the weights lie in memory that all ranks share, and whoever pushes asks the
// policy and does the update himself, block by block. Several do so at once, one behind the other (Pipeline).
//
// Under the mutex are decisions alone, and the order of the work that follows from them.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "services/parameter_server/parameter_server.h"

namespace pyc::server {

class Direct final : public ParameterServer {
 public:
  /// `update`: in place of a rule, or empty.
  Direct(Engine& engine, Memory& memory, Options options, Update update, const Nodes& nodes);

  bool is_released(Clock clock) override { return account().released.load(std::memory_order_acquire) >= clock; }
  Outcome outcome() const override;
  void leave() override;
  void push_pull(Kind kind, const std::byte* gradient, std::byte* out, const Limit& limit) override;
  std::vector<std::byte> counts(const Limit& limit) override;

  bool advance() override { return false; }
  void on_message(Rank from, ConstBytes message) override;
  bool busy() const override { return false; }
  bool in_background() const override { return false; }
  Seconds deadline() const override { return kNever; }
  bool finished() const override { return not_closed().empty(); }
  std::vector<Rank> not_closed() const override;

 protected:
  void tell_closed() override;
  void start(const std::byte* weights) override;
  void hand_over(Kind kind, const std::byte* gradient, const Limit& limit) override {
    submit(kind, gradient, nullptr, limit);
  }
  void fetch(std::byte* out, const Limit& limit) override;
  std::optional<std::vector<Rank>> awaited(const Limit& limit) override;
  bool sleep(Seconds limit, const std::function<bool()>& done) override;

 private:
  /// A step of this rank, with its place in the order, and where it finds what: later steps may change that.
  struct Job {
    Step step;
    std::optional<Ticket> ticket;      // none: nothing is to be done
    std::byte* accumulator = nullptr;  // for its gradient; null: the update takes that from the caller
    std::vector<Term> terms;           // of the update; `values` is null for the caller's gradient
  };

  Shard& shard() const { return *board_->shard(0); }
  const Account& account() const { return board_->ledger().account(worker()); }
  Job placed(Step step);
  template <class Decide>
  std::vector<Job> decide(const Decide& decide);
  bool submit(Kind kind, const std::byte* gradient, std::byte* out, const Limit& limit);
  void look(const Engine::Interrupt& interrupt);
  void work(const Job& job, const std::byte* gradient, std::byte* out, const Engine::Interrupt& interrupt);
  void call(const Job& job, const std::vector<Term>& terms, const std::byte* gradient, std::byte* out,
            const Engine::Interrupt& interrupt);
  void average(std::size_t block, const std::byte* values, std::byte* out);
  void follow(const Ticket& ticket, const Engine::Interrupt& interrupt, const std::function<void(std::size_t)>& act);
  void in_order(const Ticket& ticket, const Engine::Interrupt& interrupt, const std::function<void(std::size_t)>& act);
  void check_whole() const;

  const Update update_;
  BufferPtr sum_;  // what `update_` is given
  Decisions decisions_;
  Seconds next_look_ = 0;
};

}  // namespace pyc::server
