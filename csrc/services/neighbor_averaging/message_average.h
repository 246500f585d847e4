// Averages two models on different nodes, by messages.
//
//   requester                            other
//   Request  -------------------------->          declines if it is busy, is paused, has left, or has failed
//            <--------------------------  Accept
//   lends its model, piece by piece, some in each pass of the engine
//   x_i      -------------------------->          step = (x_i - x_j) / 2;  x_j += step
//            <--------------------------  step
//   x_i -= step
//
// The step is subtracted from the requester's current model, so gradients applied since the piece was lent stay, as in
// AD-PSGD (Algorithm 1). Lent segments take part in no other average (model_board.h). What one model gains, the other
// loses, exactly once. A piece that is locked on either side, by a neighbor on its node, is sent without values and is
// not averaged. If no piece is averaged, the requester tries again later.
//
// A rank is in one average by messages at a time, and declines requests while it waits for an answer. Thus no rank
// waits for a rank that waits, on any graph. On a bipartite graph, where only one side requests, no request is declined
// for that reason (AD-PSGD section 3.3.1).
//
// Under the engine's progress lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/run.h"
#include "memory/memory.h"
#include "schedule/schedule.h"
#include "services/neighbor_averaging/model_board.h"
#include "services/neighbor_averaging/pairwise_messages.h"

namespace pyc {

class MessageAverage {
 public:
  /// The result of this rank's request.
  struct Ended {
    Rank with;
    bool averaged;                   ///< at least one piece
    std::optional<Refusal> refusal;  ///< empty: accepted; pieces that are not averaged were locked
  };

  /// Pieces travel in both directions at once. Longer pieces keep their segments lent for longer.
  static constexpr std::size_t kPieceBytes = std::size_t{256} << 10U;
  static constexpr std::size_t kMostPieces = 64;
  /// Bytes per pass of the engine, but at least one piece or segment. Other collectives wait for that long.
  static constexpr std::size_t kBytesPerPass = std::size_t{1} << 20U;

  /// `values`: `Models::make_values`.
  MessageAverage(Engine& engine, Memory& memory, std::uint32_t collective, const PairwiseMailbox& mailbox,
                 ModelBoard& board, std::shared_ptr<std::byte[]> values);

  /// std::invalid_argument if the plans need too many tags.
  static void check(const ModelShape& shape, Tag max_tag);

  bool idle() const { return state_ == State::kIdle && to_take_back_.empty(); }
  /// Of the current average.
  Rank partner() const { return partner_; }

  void request(Rank to);
  /// Continues and ends averages. Returns whether anything changed.
  bool advance();
  /// Returns the result of the newest request once.
  std::optional<Ended> take_ended() { return std::exchange(ended_, std::nullopt); }
  /// While paused, declines all requests.
  void pause(bool paused) { paused_ = paused; }
  void leave() { has_left_ = true; }
  void fail() { has_failed_ = true; }
  /// After the last message: takes back all lent pieces, without a step.
  void give_up();
  /// Takes back pieces that were locked when their step arrived. Returns whether none is left.
  bool take_back();

  void on_request(Rank from, const AverageRequest& request);
  void on_accepted(Rank from, const AverageAccepted& accepted);
  void on_declined(Rank from, const AverageDeclined& declined);

  /// Pieces that were not averaged because they were locked. May be called from any thread.
  std::uint64_t skipped() const { return skipped_; }

 private:
  enum class State : std::uint8_t { kIdle, kRequested, kLending, kMeeting };
  /// The plan of one of the two ranks, with its run.
  struct Role {
    Schedule plan;
    Slice values;
    std::vector<OpId> releases;  // by piece; the requester fires them when the piece may be sent
    std::vector<OpId> signals;   // by piece
    std::unique_ptr<Run> run;
  };
  struct Returned {
    std::size_t piece;
    const std::byte* step;  // null: none
  };

  static Role plan_of(Rank role, const ModelShape& shape);
  void make_run(Role& role, Rank number);
  void start(Role& role, Rank requester, Rank other, std::uint64_t number);
  void begin_lending();
  bool lend_some();
  void take_step(std::size_t piece);
  void meet(std::size_t piece);
  void mark_absent(Role& role, std::size_t piece);
  bool is_present(const Role& role, std::size_t piece) const;
  Slice slice_of(const Role& role, std::size_t piece) const;
  void check_answer(Rank from, std::uint64_t number) const;
  std::optional<Refusal> refusal() const;
  std::size_t first_segment(std::size_t piece) const;
  std::size_t end_segment(std::size_t piece) const;
  std::byte* values_of(std::size_t piece) const;
  std::size_t piece_of(const Role& role, OpId signal) const;

  Engine& engine_;
  Memory& memory_;
  const std::uint32_t collective_;
  const PairwiseMailbox& mailbox_;
  ModelBoard& board_;
  const std::size_t segments_per_piece_;
  Role requester_;
  Role other_;
  std::vector<Rank> peers_;                    // of the current run: requester, other rank
  const std::shared_ptr<std::byte[]> values_;  // the requester's values, then the step
  std::vector<bool> lent_;                     // by piece, until its step arrives
  std::vector<Returned> to_take_back_;
  std::size_t next_piece_ = 0;  // the next one to lend
  bool averaged_ = false;       // a piece of the current average
  State state_ = State::kIdle;
  Rank partner_ = kNoRank;
  std::uint64_t number_ = 0;  // of the newest request
  std::optional<Ended> ended_;
  bool paused_ = false;
  bool has_left_ = false;
  bool has_failed_ = false;
  std::atomic<std::uint64_t> skipped_{0};
};

}  // namespace pyc
