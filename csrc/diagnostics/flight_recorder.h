// Records the newest rounds of this rank and the waits of its application, for the diagnosis of hangs.
//
// It is always on, so it must be cheap: an event writes to a fixed ring under a mutex held for about ten nanoseconds,
// and allocates nothing. A reader copies everything under the mutex and formats it afterwards. Any thread may call any
// function at any time; no other lock is taken inside.
//
// A collective is identified by the id of its enrollment; 0 is the communicator. A round gets an entry at its first
// event. When the ring is full, a new round replaces the oldest, whose later events are ignored.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/lock_order.h"
#include "core/types.h"
#include "diagnostics/trace.h"
#include "transport/transport.h"

namespace pyc {

struct RoundOutcome {
  Rank initiator = kNoRank;
  std::uint32_t contributor_count = 0;
  std::span<const std::uint64_t> contributors;  // bitmap over ranks; empty if unknown
};

class FlightRecorder {
 public:
  /// The progress of a round on this rank. It never decreases.
  enum class State : std::uint8_t {
    kCalled,     // this rank has contributed; the round is not known to have started
    kStarted,    // the round waits for data of this node's ranks, or reduces it
    kRunning,    // this node's part is on its way to the other nodes
    kCompleted,  // the result is here
    kGiven,      // the application has received the result
  };

  /// `rounds`: entries of the ring; 0 records nothing. Waits are recorded in the trace too, if there is one.
  FlightRecorder(const Transport& transport, std::size_t rounds, Trace* trace);
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  bool on() const { return !entries_.empty(); }

  /// Sets the communicator's name: the same on all its ranks, and unique.
  void set_group(std::string group);
  void opened(std::uint32_t collective, const std::string& name);
  /// A handle of a collective, with which `note_at` needs no lookup. Null if nothing is recorded.
  struct Track;
  std::shared_ptr<Track> track_of(std::uint32_t collective) const;
  /// This rank has closed the collective.
  void left(std::uint32_t collective);
  /// Every rank has closed the collective.
  void ended(std::uint32_t collective);

  void note(std::uint32_t collective, RoundNumber round, State state, const RoundOutcome& outcome = {}) {
    if (on()) note_at(track_of(collective).get(), round, state, transport_.now(), outcome);
  }
  void note_at(Track* track, RoundNumber round, State state, Seconds when, const RoundOutcome& outcome = {});

  /// Replaces the text of the application's current wait, when its cause is better known.
  void waits_for(std::uint32_t collective, std::string what);

  /// Records that the application waits, for the lifetime of this object. If an exception ends the wait, it is kept as
  /// given up until the next call of the collective, so that the record of a StallError shows it.
  class Waiting {
   public:
    Waiting(FlightRecorder& recorder, std::uint32_t collective, std::string what, RoundNumber round = kNoRound);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    FlightRecorder& recorder_;
    std::uint32_t collective_;
    RoundNumber round_;
    Seconds begun_;
    int exceptions_;      // in flight when the wait began
    std::string traced_;  // the cause of the wait, if there is a trace
  };

  /// Returns one JSON object. Times are seconds of the transport's clock; "clock_s" is the time of the record.
  std::string json() const;

 private:
  static constexpr Seconds kNotYet = -1;
  static constexpr std::size_t kWords = 4;  // of the bitmap, for contributors of up to 256 ranks
  static constexpr std::size_t kMostEnded = 64;

  struct Entry {
    std::uint32_t collective = 0;
    State state = State::kCalled;
    bool members_known = false;
    RoundNumber round = 0;
    std::array<Seconds, 5> times{kNotYet, kNotYet, kNotYet, kNotYet, kNotYet};  // indexed by state
    Rank initiator = kNoRank;
    std::uint32_t contributor_count = 0;
    std::array<std::uint64_t, kWords> members{};
  };

  std::shared_ptr<Track> find(std::uint32_t collective) const;
  Entry* entry_of(Track& track, RoundNumber round);
  std::string json_of(const Entry& entry, const std::string& name) const;
  static std::string json_of(const Track& track, Seconds now);

  const Transport& transport_;
  Trace* const trace_;
  mutable Ordered<LockRank::kRecorder> mutex_;
  std::string group_;
  std::vector<Entry> entries_;
  std::uint64_t recorded_ = 0;                              // the newest round is at (recorded_ - 1) % capacity
  std::map<std::uint32_t, std::shared_ptr<Track>> tracks_;  // of open collectives, and of the last ended ones
  Seconds last_call_ = kNotYet;                             // when a call of the application last began or ended
};

/// Guarded by the recorder's mutex.
struct FlightRecorder::Track {
  std::uint32_t collective = 0;
  std::string name;
  RoundNumber begun = 0;  // the newest round that has an entry, plus 1
  RoundNumber completed = 0;
  bool left = false;
  bool ended = false;
  std::string awaited;  // the cause of the wait; empty if the application does not wait
  RoundNumber awaited_round = kNoRound;
  Seconds since = kNotYet;
  Seconds gave_up = kNotYet;
};

}  // namespace pyc
