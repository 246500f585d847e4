// Allreduce that does not wait for stragglers (eager-SGD, Li et al. 2020, sections 4 and 5): what its application sees.
//
// A call hands its data over by writing it into a buffer of its node's board and hanging that up at its place, under
// the board's mutex. If the policy says that the round may start, whoever made that so takes all deposits, still under
// the mutex, reduces them without it, and publishes the result. Ranks that wait help to reduce; ranks that sleep or
// compute are not disturbed, and find the newest result when they come. If there are other nodes, the node's agent (see
// node_agent.h) is told of arrivals, starts the round when any node does, and takes the node's part to the others.
//
// Calls and rounds (DESIGN section 4). A call is late if rounds have completed that the application has not been given
// or promised. A call that is not late arrives in the present round and completes with it; a late call waits for
// nothing and is no arrival.
//
// That the promises hold within a node: all decisions (who has arrived, what a round takes, which round a call
// completes with) are made in critical sections of one mutex, hence in one order that all its ranks agree on. A deposit
// is hung up and taken down whole. What is read without the mutex is a buffer that the reader has a reference to, and a
// buffer with more than one reference is never written.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/nodes.h"
#include "engine/collective.h"
#include "engine/engine.h"
#include "memory/pool.h"
#include "node/board.h"
#include "node/standing.h"
#include "services/policy.h"
#include "services/round.h"

namespace pyc {

class Loans;
class NodeAgent;
struct PartialAllreducePlan;

struct PartialAllreduceOptions {
  enum class Late : std::uint8_t { kAccumulate, kReplace, kDrop };
  enum class Missed : std::uint8_t { kLatest, kSum };

  std::string name;
  std::size_t count = 0;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Policy policy;
  Late late = Late::kAccumulate;
  Missed missed = Missed::kLatest;
  std::optional<std::uint64_t> max_staleness;
  std::size_t history = 8;
  bool track_members = true;
  std::size_t segment_bytes = kSegmentBytes;  // of the reduction within a node
  // Between nodes.
  std::string activation = "tree";
  std::string algorithm = "recursive_doubling";
};

class PartialAllreduce final : public Collective {
 public:
  using Options = PartialAllreduceOptions;

  /// Collective over the engine's ranks; those of a node must share a machine. StallError as `Engine::exchange`;
  /// std::runtime_error on all ranks if the memory cannot be had on one, std::length_error on all if its bytes cannot
  /// even be counted. The result keeps the engine alive.
  static std::shared_ptr<PartialAllreduce> create(std::shared_ptr<Engine> engine, Memory& memory, Options options,
                                                  const Nodes& nodes, Seconds timeout,
                                                  const Engine::Interrupt& interrupt);

  /// The same without agreement, which the caller sees to: `shared` has `bytes_of_board` and is the same on all ranks
  /// of a node; the agent comes first. Every rank must create the same collectives in the same order.
  static std::shared_ptr<PartialAllreduce> join(std::shared_ptr<Engine> engine, Memory& memory, Options options,
                                                const Nodes& nodes, std::shared_ptr<SharedMemory> shared);
  static std::size_t bytes_of_board(const Options& options, const Nodes& nodes, Rank rank);

  ~PartialAllreduce() override;

  /// Hands over `count` elements; they may be overwritten on return.
  std::shared_ptr<Call> contribute(const std::byte* data);
  /// Whether the call is done; if so the result is up to date.
  bool test(Call& call);
  /// `test` that drives nothing.
  bool try_finish(Call& call);
  /// StallError after `timeout` seconds (negative: no limit) names the ranks that are missing.
  const RoundInfo& wait(Call& call, Seconds timeout, const Engine::Interrupt& interrupt);

  /// Leaves until a flush round completes, which is what the call waits for.
  std::shared_ptr<Call> start_flush();
  /// Leaves for good. Returns at once.
  void close();
  /// Throws away what waits to be taken; the number of contributions in it.
  std::size_t discard();

  /// `count` elements of the element type, never written again while referenced; null before the first.
  std::shared_ptr<const std::byte> result();
  /// Copies it there, which takes no memory and no lock; false before the first.
  bool read_result(std::byte* to) const;
  bool closed() const { return closed_; }
  /// What a call touches in every round.
  void add_to(Footprint& footprint) const;
  RoundNumber rounds() const { return board_->completed(); }
  const Options& options() const { return options_; }
  /// What this rank's engine does between nodes; null if it does nothing there.
  const Schedule* schedule() const;

  // ---- Collective

  bool advance() override;
  void on_notice(Rank from, ConstBytes notice) override;
  bool busy() const override;
  bool in_background() const override { return agent_ != nullptr; }
  Seconds deadline() const override;
  bool finished() const override;
  const std::string& name() const override { return options_.name; }
  void abandon() override;
  std::vector<Rank> not_closed() const override;
  void name_the_dead() const override { check_alive(); }
  bool has_waiting(Rank rank) const override;
  void on_engine_failure(const std::exception_ptr& error) override;

  /// How the rank at a place of this node's board stands to a round. Under the engine's progress lock.
  Report report_of(Rank place, RoundNumber round) const;

 private:
  using Lock = std::unique_lock<RobustMutex>;

  PartialAllreduce(Engine& engine, Memory& memory, Options options, const Nodes& nodes,
                   std::shared_ptr<SharedMemory> shared);

  std::optional<PartialAllreducePlan> plan() const;
  static std::shared_ptr<PartialAllreduce> enroll(std::shared_ptr<Engine> engine,
                                                  std::shared_ptr<PartialAllreduce> made,
                                                  std::optional<PartialAllreducePlan> plan);

  // handing over
  bool hand_over(Call& call, BufferNumber& written, bool combined);
  void run_rounds(Lock& lock);
  Rank starter();
  void leave(bool for_good);
  void do_leave(bool for_good);
  std::shared_ptr<Call> do_contribute(const std::byte* data);
  template <class Action>
  auto naming_the_dead(Action action);

  // results
  void tell(Call& call, const Board::RecordView& view) const;
  void promise_kept();
  void note_given(const Call& call, Seconds when);
  /// What the application is given: buffers that it has a reference to until they are summed or let go.
  struct Given {
    struct Term {
      BufferNumber buffer;
      std::size_t divisor;
    };
    Term one{kNoBuffer, 1};
    std::vector<Term> others;  // under missed="sum"
    bool nothing_new = false;

    bool is_single() const { return one.buffer != kNoBuffer && others.empty(); }
    void add(Term term);
    template <class Action>
    void for_each(Action action);
  };
  Given collect(Call& call);
  void publish(Given given, Lock& lock);
  void compute(Given& given);
  void take_back();

  // waiting
  bool drive(Call& call);
  bool wait_until(const std::function<bool()>& done, Seconds timeout, const Engine::Interrupt& interrupt);
  void check_alive() const;
  void look_now_and_then(Seconds now);
  void add_own_node(std::vector<Report>& reports, RoundNumber round);
  std::string why_silent(const std::vector<Report>& reports) const;
  [[noreturn]] void stall(const Call& call, const Engine::Interrupt& interrupt);

  Engine* const engine_;  // owns this
  Memory& memory_;
  const Options options_;
  const Nodes nodes_;
  const Elements elements_;
  std::uint32_t id_ = 0;  // set before the first call
  std::shared_ptr<FlightRecorder::Track> track_;
  std::shared_ptr<Board> board_;
  std::shared_ptr<BufferPool> pool_;  // for results that are computed for this rank alone
  std::unique_ptr<NodeAgent> agent_;  // if there are other nodes and this rank speaks for its own

  std::vector<std::shared_ptr<Call>> pending_;  // contributions whose calls are not done
  std::shared_ptr<Call> open_flush_;            // not done; a flush that ran into its timeout is taken up again
  std::uint64_t sequence_ = 0;
  RoundNumber given_ = 0;      // rounds before this have been given to the application
  RoundNumber accounted_ = 0;  // ... or were promised to a call that is done
  BufferNumber spare_ = kNoBuffer;
  int spins_ = 0;
  int looks_ = 0;  // of a waiting call since it last had something to do
  Seconds next_look_ = 0;
  // The result lies in a buffer of the board that this rank has a reference to, or, once somebody looks at it there or
  // if it had to be computed, in `result_`.
  BufferNumber shown_ = kNoBuffer;
  std::shared_ptr<const std::byte> result_;
  std::shared_ptr<Loans> loans_;
  std::atomic<bool> closed_{false};
};

}  // namespace pyc
