// A parameter server whose servers serve: each from its engine's progress, whatever its application does.
//
// The lowest server is the coordinator: workers tell it of their pushes, it alone asks the policy, and tells all
// servers what to do, in the same order, and workers when they may go on. Gradients go to the servers directly: a
// worker of a server's node copies its part into its slot there, and one of another node sends it (Transfers). Weights
// likewise. Who shares memory with all servers, and waits for the weights, does the work on them himself if it is an
// update by his gradient: the servers say when (Shard::Work).
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/parameter_server/executor.h"
#include "services/parameter_server/granted_work.h"
#include "services/parameter_server/parameter_server.h"
#include "services/parameter_server/transfers.h"

namespace pyc::server {

class Served final : public ParameterServer {
 public:
  /// `update`: in place of a rule, or empty.
  Served(Engine& engine, Memory& memory, Options options, Update update, const Nodes& nodes);
  ~Served() override;

  bool is_released(Clock clock) override { return released_.load(std::memory_order_acquire) >= clock; }
  Outcome outcome() const override;
  void suspend(const Limit& limit) override;
  void push_pull(Kind kind, const std::byte* gradient, std::byte* out, const Limit& limit) override;
  std::vector<std::byte> counts(const Limit& limit) override;
  std::shared_ptr<UpdateCalls> update_calls() const override { return calls_; }

  bool advance() override;
  bool busy() const override { return (!is_idle() && !is_calling()) || is_push_near(); }
  bool in_background() const override { return true; }
  Seconds deadline() const override;
  /// What each rank has asked for has come before its goodbye, and what the coordinator has decided before its last.
  bool finished() const override { return all_closed_ && open_ranks_ == 0 && left_.empty() && is_idle(); }
  std::vector<Rank> not_closed() const override;

 protected:
  void tell_closed() override;
  void open() override { transfers_.open(id()); }
  void receive(Rank from, ConstBytes message) override;
  void start(const std::byte* weights) override;
  void hand_over(Kind kind, const std::byte* gradient, const Limit& limit) override;
  void fetch(std::byte* out, const Limit& limit) override;
  std::optional<std::vector<Rank>> awaited(const Limit& limit) override;
  void attend() override { check_whole(); }
  bool sleep(Seconds limit, const std::function<bool()>& done) override;

 private:
  /// What this rank has asked a server of another node for.
  struct Question {
    bool asked = false;     // ... and not been given
    bool answered = false;  // the weights lie in `incoming_`
    Version version = 0;    // of these
    Clock clock = 0;        // elastic averaging: of which push
  };
  /// A rank of another node that wants this server's weights.
  struct Reader {
    bool wants = false;
    Version version = 0;
    Clock clock = 0;  // elastic averaging: what has become of that push
    std::optional<Ticket> ticket;
    std::size_t block = 0;
    bool sends = false;
    BufferPtr copy;
  };

  static constexpr Seconds kLookPeriod = 0.02;
  static constexpr Seconds kNear = 1e-3;

  /// Nothing is under way but work of the application that is left: that waits for other ranks.
  bool is_idle() const;
  /// Workers push one after the other: a server that naps at once answers the next one late.
  bool is_push_near() const { return engine_->transport().now() < last_step_ + kNear; }
  /// A function may take long: it has its core for itself.
  bool is_calling() const { return executor_ && executor_->is_calling(); }
  Shard* shard_at(std::size_t s) const { return board_->shard(s); }
  void check_whole() const override;

  // ---- the worker

  template <class Decide, class Message>
  void tell_coordinator(const Decide& decide, const Message& message);
  template <class Decide, class Message>
  void tell(const Decide& decide, const Message& message);
  bool has_room() const;
  void wait_for_room(const Limit& limit);
  void tell_push(Kind kind, Clock clock);
  void stage(const std::byte* gradient);
  void offer_staged(Clock clock);
  void fill_slot(std::size_t s, const std::byte* gradient, Clock clock);
  void load(std::size_t s, std::byte* into, const std::byte* gradient) const;
  bool works_itself(Kind kind) const;
  Version do_granted(Clock clock, const std::byte* gradient, std::byte* out, const Limit& limit);
  std::deque<GrantedWork> offered(Clock clock, const std::byte* gradient, std::byte* out) const;
  void leave_to_engine(std::deque<GrantedWork> works);
  bool advance_left();
  Version read_local(std::size_t s, std::byte* out, Version version, Clock reply, const Limit& limit,
                     const std::string& what);
  bool has_answered(std::size_t s, Version version, Clock reply);
  void take_release(const messages::Release& release);
  std::byte* part(std::byte* all, std::size_t s, std::size_t element) const { return all + layout_.first(s) * element; }

  // ---- the server

  bool take_offers();
  bool serve_readers();
  bool serve(Rank to, Reader& reader);
  void tell_failure();

  // ---- the coordinator

  void coordinate(Rank from, const messages::Push& push);
  void publish();
  void tell_servers(const Step& step);
  void note_closed(Rank rank);
  std::vector<Rank> awaited_ranks();
  void say_awaited(Rank to);
  void say_counts(Rank to);

  std::optional<Ledger> ledger_;  // the coordinator's
  std::vector<std::byte> ledger_memory_;
  Decisions decisions_;
  std::vector<bool> closed_ranks_;
  Rank open_ranks_;  // how many have not closed it, this one included
  Seconds next_look_ = 0;

  Update function_;                       // until the server's calls have it
  std::shared_ptr<UpdateCalls> calls_;    // the server's, if there is a function
  std::optional<Executor> executor_;      // the server's
  Seconds last_step_ = -kNever;           // when it last did something
  std::vector<Part> parts_;               // of its next step
  std::map<Rank, std::uint64_t> offers_;  // gradients that are offered and not accepted: pushes
  std::map<Rank, Reader> readers_;

  std::vector<std::size_t> local_, remote_;  // shards of this node, and of others
  Transfers transfers_;
  BufferPtr outgoing_;                          // the worker's: its gradient for servers of other nodes
  BufferPtr incoming_;                          // weights of servers of other nodes
  std::atomic<std::size_t> open_gradients_{0};  // offered by this worker and not sent yet
  std::vector<Question> questions_;             // by server
  std::vector<GrantedWork> left_;               // to the engine; under the progress lock
  std::atomic<bool> has_left_{false};
  Clock last_gradient_ = 0;  // the application's
  std::atomic<Clock> released_{0};
  Outcome outcome_;  // under the progress lock
  std::atomic<bool> all_closed_{false};
  std::atomic<Rank> failed_{kNoRank};  // the server whose function has thrown, as this rank has been told
  std::vector<Rank> awaited_;
  bool awaited_is_known_ = false;
  std::vector<std::byte> counts_;  // as far as they have come
};

}  // namespace pyc::server
