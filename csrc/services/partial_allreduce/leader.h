// The rounds of a partial allreduce between nodes (eager-SGD, Li et al. 2020, sections 4 and 5). The leader of a node
// acts for all of its ranks. It exchanges arrivals, departures and data with the other leaders, and publishes results
// on its node's board, under the board's mutex. A state machine without a clock or I/O of its own, under the engine's
// progress lock. The same code runs over MPI, over loopback threads and in the simulator.
//
//   armed     receives of the activation are posted; an arrival on the board may start the round
//   active    this node or another has started the round: the board takes the data of its ranks and reduces it
//   running   the node's part is complete, and the run reduces it with the other parts
//
// For data on devices, the run works in pinned host memory (staging.h), and the plan contains the copies to and from
// it. If a device fails, rounds continue without data until all ranks have closed, and no result is published.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/nodes.h"
#include "engine/collective.h"
#include "engine/engine.h"
#include "engine/run.h"
#include "services/common/mailbox.h"
#include "services/common/rank_state.h"
#include "services/common/staging.h"
#include "services/partial_allreduce/board.h"
#include "services/partial_allreduce/grace.h"
#include "services/partial_allreduce/membership.h"
#include "services/partial_allreduce/partial_allreduce.h"
#include "services/partial_allreduce/plan.h"
#include "services/partial_allreduce/stall_inspector.h"

namespace pyc {

PartialAllreducePlan plan_for(const PartialAllreduceOptions& options, const Nodes& nodes, Rank rank);

class Leader {
 public:
  /// All references must outlive this object. `id`: of the collective. `staging`: for data on devices, otherwise null.
  Leader(Engine& engine, ReductionMemory& memory, const PartialAllreduceOptions& options, const Nodes& nodes,
         Board& board, const StallInspector& inspector, PartialAllreducePlan plan, std::uint32_t id, Staging* staging);

  /// Arms the next round, so that any node can start it. The owner calls it once after construction. It posts receives,
  /// so an exception must not destroy the leader afterwards.
  void arm();
  bool advance();
  void on_message(Rank from, ConstBytes message);
  bool busy() const { return phase_ == Phase::kActive || phase_ == Phase::kRunning; }
  Seconds deadline() const { return grace_ends_; }
  bool finished() const { return phase_ == Phase::kEnded && draining_.empty(); }
  std::vector<Rank> not_closed() const { return membership_.closed().missing(nodes_.size()); }
  const Schedule& schedule() const { return plan_.schedule; }
  /// Memory of the runs, without the buffers of the board. Does not need the engine's lock.
  std::size_t memory_bytes() const { return memory_bytes_; }

 private:
  enum class Phase : std::uint8_t { kArmed, kActive, kRunning, kEnded };
  using Lock = std::unique_lock<BoardMutex>;

  struct PooledRun {
    std::unique_ptr<Run> run;
    BufferNumber data = kNoBuffer;  // bound to the run until it has retired
  };

  /// Requests for a round, if this node is its coordinator or has nodes below it in the activation's tree.
  struct Requests {
    RoundNumber round = 0;
    RankSet arrived = {};
    Rank newest_arrival = kNoRank;
    Rank starter = kNoRank;  // lowest rank whose start was requested
  };

  // Messages between leaders. Ranks have 64 bits where a message would otherwise have padding.
  struct Arrival {
    RoundNumber round;
    Rank rank;
    std::uint32_t age_us;  // microseconds since the call, for an adaptive grace
  };
  struct Start {
    RoundNumber round;
    std::int64_t initiator;
  };
  struct Departure {
    std::uint64_t epoch;
    Rank rank;
    std::uint32_t closed;  // 1: permanently
  };
  struct Inquiry {
    RoundNumber round;
  };
  struct RankReport {
    RoundNumber round;
    Rank rank;
    Report report;
  };
  /// The failure of a rank's device. The text may take several messages.
  struct DeviceFailure {
    Rank rank;
    std::uint32_t more;  // 1: more of the text follows
    using Tail = char;
  };
  using Messages = Mailbox<Arrival, Start, Departure, Inquiry, RankReport, DeviceFailure>;

  void read_board();
  void arrive(Rank rank);
  void tell(const Arrival& arrival);
  void count(const Arrival& arrival);
  Rank coordinator_node() const;
  Requests& requests_of(RoundNumber round);
  void request_start(Rank initiator, RoundNumber round);
  void leave(Rank rank, bool for_good);
  void reconsider();
  void start(Rank initiator);
  void activated(Run& run);
  bool release();
  bool take_part();
  void take_part_without_data();
  void complete(Run& run);
  void make_scratch();
  void retire();
  bool work(Lock& lock);
  bool advance_devices();
  void lose_data(const std::exception_ptr& error);
  void lose_data();
  void tell_failure();
  void hear_failure(const DeviceFailure& message, std::span<const char> text);
  void inquire(RoundNumber round);
  void answer(Rank node, RoundNumber round);
  void pass_on(const Departure& departure);
  ReductionMemory& messages_memory() { return staging_ == nullptr ? memory_ : host_memory(); }
  std::size_t element_bytes() const {  // a round without elements still runs
    return options_.count > 0 ? size_of(board_.shape().elements.accumulator) : 0;
  }
  template <class Message>
  void send(Rank node, const Message& message) {
    messages_.send(nodes_.leader(node), message);
  }

  Engine& engine_;
  ReductionMemory& memory_;
  const PartialAllreduceOptions& options_;
  const Nodes& nodes_;
  Board& board_;
  const StallInspector& inspector_;
  Staging* const staging_;
  const Rank node_;
  const std::uint32_t id_;
  const Messages messages_;
  const PartialAllreducePlan plan_;
  const BlockRange data_blocks_;

  Phase phase_ = Phase::kArmed;
  RoundNumber round_ = 0;
  Membership membership_;
  RankSet arrived_;
  Rank initiator_ = kNoRank;
  Requests requests_[2];  // of round_ and the next round, by parity: other nodes may be one round ahead
  Seconds grace_ends_ = Collective::kNever;
  Grace grace_;  // of the rounds whose arrivals this node counts
  std::vector<std::pair<BufferId, BufferPtr>> scratch_;
  std::vector<std::unique_ptr<PooledRun>> pool_of_runs_;
  std::atomic<std::size_t> memory_bytes_{0};
  std::vector<PooledRun*> idle_runs_;
  std::vector<PooledRun*> draining_;  // complete, but with sends or activations in flight
  PooledRun* current_ = nullptr;
  bool is_lost_ = false;  // a device has failed, here or elsewhere; this node has no data anymore
  bool is_told_ = false;  // all nodes know why, from this node or another
  std::map<Rank, std::string> failure_texts_;
};

}  // namespace pyc
