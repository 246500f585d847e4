// A parameter server with server processes. Each serves from its engine's progress, whatever its application does.
//
// The lowest server is the coordinator. It receives all pushes, asks the policy, sends each server the same steps in
// the same order, and releases workers. Gradients go to the servers directly: a worker on the server's node copies its
// part into its slot, and other workers send it (Transfers). Weights travel the same way. If each gradient is an update
// by itself, a worker that shares memory with all servers and waits for the weights updates them itself, when the
// servers grant it (Shard::Work).
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/rank_set.h"
#include "services/parameter_server/executor.h"
#include "services/parameter_server/granted_work.h"
#include "services/parameter_server/parameter_server.h"
#include "services/parameter_server/transfers.h"

namespace pyc::server {

class Served final : public ParameterServer {
 public:
  /// `update`: replaces the update rule; may be empty.
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
  /// Messages of a rank arrive in order: a rank's requests before its Closed, the coordinator's decisions before
  /// AllClosed.
  bool finished() const override { return all_closed_ && have_all_closed() && left_.empty() && is_idle(); }
  std::vector<Rank> not_closed() const override { return closed_ranks_.missing(engine_->size()); }

 protected:
  void tell_closed() override;
  void open() override { transfers_.open(id()); }
  void receive(Rank from, ConstBytes message) override;
  void start(const std::byte* weights) override;
  void hand_over(Kind kind, const std::byte* gradient, const Limit& limit) override;
  void fetch(std::byte* out, const Limit& limit, Version least) override;
  std::optional<std::vector<Rank>> awaited(const Limit& limit) override;
  void attend() override { check_whole(); }
  bool sleep(Seconds limit, const std::function<bool()>& done) override;
  bool settle_once() override;
  void give_up_work(std::size_t s) override;

 private:
  /// A request of this rank to a server of another node.
  struct Question {
    bool asked = false;     // sent, and not answered yet
    bool answered = false;  // the weights are in `incoming_`
    Version version = 0;    // of the weights
    Clock clock = 0;        // elastic averaging: the push whose averaged weights are wanted
  };
  /// A rank of another node that reads this server's weights.
  struct Reader {
    bool wants = false;
    Version version = 0;
    Clock clock = 0;  // elastic averaging: the push whose averaged weights it wants
    std::optional<Ticket> ticket;
    std::size_t block = 0;
    bool sends = false;
    BufferPtr copy;
  };

  static constexpr Seconds kLookPeriod = 0.02;
  static constexpr Seconds kNear = 1e-3;

  /// Nothing is under way, except leftover work of calls, which waits for other ranks.
  bool is_idle() const;
  /// Workers push in rapid succession, and a server that naps at once would answer the next one late.
  bool is_push_near() const { return engine_->transport().now() < last_step_ + kNear; }
  /// An update function may take long, so it gets the core to itself.
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
  bool is_included_somewhere(Clock clock) const;
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
  bool have_all_closed() const { return closed_ranks_.count() == engine_->size(); }
  std::vector<Rank> awaited_ranks();
  void say_awaited(Rank to);
  void say_counts(Rank to);

  std::optional<Ledger> ledger_;  // the coordinator's
  std::vector<std::byte> ledger_memory_;
  Decisions decisions_;
  RankSet closed_ranks_;
  Seconds next_look_ = 0;

  Update function_;                       // moved into the server's `calls_`
  std::shared_ptr<UpdateCalls> calls_;    // the server's, if there is an update function
  std::optional<Executor> executor_;      // the server's
  Seconds last_step_ = -kNever;           // time of the executor's last progress
  std::vector<Part> parts_;               // of the executor's next step
  std::map<Rank, std::uint64_t> offers_;  // gradients offered and not accepted yet: number of the push
  std::map<Rank, Reader> readers_;

  std::vector<std::size_t> local_, remote_;  // shards on this node, and on others
  Transfers transfers_;
  BufferPtr outgoing_;                          // the worker's gradient for servers of other nodes
  BufferPtr incoming_;                          // weights from servers of other nodes
  std::atomic<std::size_t> open_gradients_{0};  // this worker's gradients that are not sent yet
  std::vector<Question> questions_;             // by server
  std::vector<GrantedWork> left_;               // for the engine; under the progress lock
  std::atomic<bool> has_left_{false};
  Clock last_gradient_ = 0;  // push of the newest gradient; used by the application's thread
  std::atomic<Clock> released_{0};
  Outcome outcome_;  // under the progress lock
  std::atomic<bool> all_closed_{false};
  std::atomic<Rank> failed_{kNoRank};  // the server whose update function has thrown, from its message
  std::vector<Rank> awaited_;
  bool awaited_is_known_ = false;
  std::vector<std::byte> counts_;  // pieces received so far
};

}  // namespace pyc::server
