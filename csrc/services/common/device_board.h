// Reductions among ranks of a node that reach each other's memory, whatever kind that is: each rank has an arena,
// whoever combines folds the arenas of all. The host decides and the device moves data: what is in which buffer stands
// in memory of the host that the ranks share (device_board_control.h).
//
//   contribute   the values are copied into this rank's arena, where they wait for a round
//   fold         begins a round with what some ranks have contributed, or does a part of one that was begun
//   result       the result of a round is copied out
//
// No call waits. Work is queued on streams, and `advance` polls for it: a rank says that a buffer has become something
// else when the work before that, which the rank itself has queued, is done. So a state that is seen is true on the
// device too, and no stream ever waits for another rank's. Contributions are folded in the order of ranks, whoever
// comes when and whoever folds.
//
// A round has a *ticket*, which the caller draws: at least 1, the same on all ranks that call for the round, and used
// for no other. Calls of one rank are made one at a time. What goes wrong with one rank's device is thrown there, and
// from then on by every call of the others, with that rank's name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/patterns.h"
#include "core/types.h"
#include "memory/arena.h"
#include "memory/executor.h"
#include "services/common/device_board_control.h"

namespace pyc {

class DeviceBoard {
 public:
  /// What becomes of values that no round has taken when the rank contributes again.
  enum class Late : std::uint8_t { kReplace, kAccumulate };
  static constexpr std::uint64_t kAnyRound = 0;
  /// How long a result is kept: until all its readers have read it, or no longer than until there is a newer one. With
  /// kLatest, tickets grow from round to round, all rounds have the same readers, and nobody asks for a ticket again
  /// of which he has a later one's result.
  enum class Keep : std::uint8_t { kUntilRead, kLatest };
  struct Shape {
    Elements elements;
    ReduceOp op;
    std::size_t count;
    Keep keep = Keep::kUntilRead;
  };

  /// Of the control.
  static constexpr std::size_t bytes() { return sizeof(DeviceBoardControl); }
  /// To be called once for zeroed memory, before any rank's board is made in it.
  static void prepare(std::byte* control);

  /// Of the rank at `local` of `ranks`, those of the node. Allocates all that it will ever need.
  DeviceBoard(Executor& executor, const Shape& shape, std::vector<Rank> ranks, std::size_t local,
              std::shared_ptr<std::byte> control);
  /// If it was not closed, memory that another rank may still have mapped is never freed.
  ~DeviceBoard();
  DeviceBoard(const DeviceBoard&) = delete;
  DeviceBoard& operator=(const DeviceBoard&) = delete;

  /// Maps the arenas of all others, whose boards are made. All ranks do before any of them makes another call.
  void attach();

  /// For the round with that ticket alone, or for any. False if no buffer is free yet. Else the values are taken when
  /// what `producer` has queued is done, and what it does afterwards may overwrite them.
  bool contribute(const std::byte* values, Stream& producer, Late late, std::uint64_t ticket = kAnyRound);
  /// Ranks whose contribution any round may take.
  LocalRanks waiting() const;
  /// The last round that has taken a contribution of this rank; 0: none.
  std::uint64_t taken_by() const;

  /// To be called until it is true, and not when the result was read. If the round is not begun, begins it with the
  /// contributions of `ranks`, at least one, for `readers`, to be folded in so many parts. Then, or if somebody else
  /// has, folds a part of it, if one is left. Whether the round was begun: false if a contribution is not there yet, or
  /// no buffer is free.
  bool fold(std::uint64_t ticket, LocalRanks ranks, LocalRanks readers, std::size_t parts);

  struct Result {
    std::uint64_t ticket;  ///< with kLatest it may be a later one
    LocalRanks contributors;
  };
  /// Of a round whose reader this rank is, once. Nothing if it is not folded yet. Else what `consumer` does from now on
  /// comes after `out` has the result.
  std::optional<Result> result(std::uint64_t ticket, std::byte* out, Stream& consumer);

  /// Polls, and says what has become of it. Whether none of this rank's work is under way.
  bool advance();

  /// Begins to end this rank's part, at first, and goes on with it: true when nobody uses its arena any more. The rank
  /// reads no further results. What it has contributed stays there until then.
  bool close();

  /// Local ranks whose process has ended.
  LocalRanks gone() const;

  // For a caller that has nothing else to do: sleeps until another rank has changed something since `rings` was said.
  std::uint32_t rings() const { return control_->events.rings(); }
  void sleep(std::uint32_t rings, Seconds limit) const { control_->events.wait(rings, limit); }

 private:
  using Control = DeviceBoardControl;
  using Place = Arena::Place;
  struct Part {
    Place round;
    Interval elements;
    std::vector<Place> inputs;
  };

  template <class Action>
  auto guarded(Action action);
  void throw_failure() const;
  void note_failure(const std::string& text);

  LocalRanks self() const { return LocalRanks{1} << local_; }
  DeviceBuffer& at(const Place& place) const { return control_->seats[place.slot].buffers[place.buffer]; }

  // Under the mutex:
  template <class Condition>
  std::optional<Place> find(std::size_t slot, BufferUse use, Condition condition) const;
  std::optional<Place> find(std::size_t slot, BufferUse use, std::uint64_t ticket) const;
  std::optional<Place> find_of_any_rank(BufferUse use, std::uint64_t ticket) const;
  std::optional<Place> find_waiting(std::size_t slot, std::uint64_t ticket) const;
  bool is_over(std::uint64_t ticket) const;
  std::optional<Place> begin(std::uint64_t ticket, LocalRanks ranks, LocalRanks readers, std::size_t parts);
  std::optional<Part> begin_part(const Place& round) const;
  void end_part(const Place& round) const;
  void supersede() const;
  void free_if_read(DeviceBuffer& buffer) const;

  bool has_polled_all() const { return !filling_ && folding_.empty() && giving_.empty(); }
  bool is_done();
  void leave();
  void detach();

  const std::vector<Rank> ranks_;
  const std::size_t local_;
  const Keep keep_;
  std::shared_ptr<Control> control_;
  Arena arena_;
  ArenaSeats seats_;
  bool has_left_ = false;
  bool is_marked_ = false;
  bool is_detached_ = false;

  // Queued, and not polled yet:
  std::optional<Place> filling_;
  std::vector<Place> folding_;  // once for each part
  std::vector<Place> giving_;
};

}  // namespace pyc
