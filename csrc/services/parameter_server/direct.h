// A parameter server without server processes: the weights are in memory that all ranks share. A rank that pushes asks
// the policy and updates the weights itself, block by block. Several ranks do so at once, one behind the other
// (Pipeline).
//
// A rank holds its turn of the pipeline only while it decides and orders the work. If a call cannot wait for its work,
// the engine's progress finishes it.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "services/parameter_server/parameter_server.h"
#include "services/parameter_server/work.h"

namespace pyc::server {

class Direct final : public ParameterServer {
 public:
  /// `update`: replaces the update rule; may be empty.
  Direct(Engine& engine, Memory& memory, Options options, Update update, const Nodes& nodes);

  bool is_released(Clock clock) override { return account().released.load(std::memory_order_acquire) >= clock; }
  Outcome outcome() const override;
  void suspend(const Limit& limit) override;
  void push_pull(Kind kind, const std::byte* gradient, std::byte* out, const Limit& limit) override;
  std::vector<std::byte> counts(const Limit& limit) override;

  bool advance() override;
  bool busy() const override { return false; }
  bool in_background() const override { return has_left_.load(); }
  bool finished() const override { return left_.empty() && not_closed().empty(); }
  std::vector<Rank> not_closed() const override;

 protected:
  void receive(Rank from, ConstBytes message) override;
  void start(const std::byte* weights) override;
  void hand_over(Kind kind, const std::byte* gradient, const Limit& limit) override {
    submit(kind, gradient, nullptr, limit);
  }
  void fetch(std::byte* out, const Limit& limit, Version least) override;
  std::optional<std::vector<Rank>> awaited(const Limit& limit) override;
  void attend() override;
  bool sleep(Seconds limit, const std::function<bool()>& done) override { return sleep_until_notified(limit, done); }
  bool settle_once() override {
    return engine_->exclusively([this] { return advance(); });
  }

 private:
  using Works = std::deque<Work>;
  struct Decided {
    Works works;
    bool goes_on = false;  // this rank's worker is released
  };

  Shard& shard() const { return *board_->shard(0); }
  Pipeline& pipeline() const { return shard().pipeline(); }
  const Account& account() const { return board_->ledger().account(worker()); }
  Obstacle obstacle() const;

  std::optional<Decided> decide(const std::function<void(Ledger&, Decisions&)>& decide);
  void place(Step step, Pipeline::Turn& turn, Works& works);
  void take_out_closed(Decisions& decisions);
  bool has_news() const { return board_->closings() != closings_; }
  void look();

  bool submit(Kind kind, const std::byte* gradient, std::byte* out, const Limit& limit);
  bool is_overdue(Seconds now);
  bool proceed(Work& work, std::size_t most);
  bool follow(Work& work);
  bool finish(const std::string& what, Works& works, const Limit& limit);
  void call(Works& works);
  void do_all(Works works);
  void leave_to_engine(Works works);
  void check_whole() const override;

  UpdateCall update_;  // no function: there is an update rule
  std::mutex hands_;   // held while this process works on the shard, in a call or in the engine
  Works left_;         // for the engine; under the progress lock
  std::atomic<bool> has_left_{false};

  // Only the application's thread uses these.
  mutable Outcome outcome_;
  std::uint32_t closings_ = 0;  // closed ranks that the ledger knows of
  Seconds next_look_ = 0;
};

}  // namespace pyc::server
