// An average of two models on different nodes, by messages.
//
//   requester                            other
//   Request  -------------------------->          declines if it is in an average itself, is paused, or has left
//            <--------------------------  Accept
//   lends its model, piece by piece, some in each pass of the engine
//   x_i      -------------------------->          step = (x_i - x_j) / 2;  x_j += step
//            <--------------------------  step
//   x_i -= step
//
// The step is taken from what the requester's model has become by then: gradients that were applied meanwhile stay, as
// in AD-PSGD (Algorithm 1), and other averages are kept off (model_board.h). So what one model gains the other one
// loses, exactly once each. A piece that is locked on either side, by a neighbor on its node, is sent without values,
// and is then not averaged. Where no piece could be, nothing has happened: the requester tries again.
//
// A rank is in one average by messages at a time, and one that waits for an answer declines: so nobody waits for a rank
// that waits, on any graph. On a bipartite graph, where only one side requests, nothing is ever declined for that
// reason (AD-PSGD section 3.3.1).
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
  /// How an average that this rank had requested came out.
  struct Ended {
    Rank with;
    bool averaged;                   ///< a piece at least
    std::optional<Refusal> refusal;  ///< why not; none: all was locked
  };

  /// Two pieces are under way in both directions at once; a longer one keeps its segments lent for longer.
  static constexpr std::size_t kPieceBytes = std::size_t{256} << 10U;
  static constexpr std::size_t kMostPieces = 64;
  /// Are copied at a time, at most: other collectives wait for so long.
  static constexpr std::size_t kBytesPerPass = std::size_t{1} << 20U;

  /// `values`: memory for a whole model, of `Models::make_values`.
  MessageAverage(Engine& engine, Memory& memory, std::uint32_t collective, const PairwiseMailbox& mailbox,
                 ModelBoard& board, std::shared_ptr<std::byte[]> values);

  /// std::invalid_argument if its plans need too many tags.
  static void check(const ModelShape& shape, Tag max_tag);

  bool idle() const { return state_ == State::kIdle && to_take_back_.empty(); }
  /// Of the average that is under way.
  Rank partner() const { return partner_; }

  void request(Rank to);
  /// Ends what has come to its end. Whether anything did.
  bool advance();
  /// What came of the newest request, once.
  std::optional<Ended> take_ended() { return std::exchange(ended_, std::nullopt); }
  /// Declines what is requested from now on.
  void pause(bool paused) { paused_ = paused; }
  void leave() { has_left_ = true; }
  void fail() { has_failed_ = true; }
  /// No message comes any more: what is lent is taken back as it is.
  void give_up();
  /// Takes back what was locked when its step came. Whether nothing is left of it.
  bool take_back();

  void on_request(Rank from, const AverageRequest& request);
  void on_accepted(Rank from, const AverageAccepted& accepted);
  void on_declined(Rank from, const AverageDeclined& declined);

  /// Pieces that were not averaged because they were locked.
  std::uint64_t skipped() const { return skipped_; }  // of any thread

 private:
  enum class State : std::uint8_t { kIdle, kRequested, kLending, kMeeting };
  /// A plan of one of the two ranks, with its run.
  struct Role {
    Schedule plan;
    Slice values;
    std::vector<OpId> releases;  // by piece, of the requester: its values are there
    std::vector<OpId> signals;   // by piece
    std::unique_ptr<Run> run;
  };
  struct Returned {
    std::size_t piece;
    const std::byte* step;  // null: there is none
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
  std::vector<Rank> peers_;                    // of the run that is under way: the requester and the other
  const std::shared_ptr<std::byte[]> values_;  // of the requester's model, then the step
  std::vector<bool> lent_;                     // by piece, until its step has come
  std::vector<Returned> to_take_back_;
  std::size_t next_piece_ = 0;  // to be lent
  bool averaged_ = false;       // a piece, in the average that is under way
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
