// The newest rounds as this rank has seen them, and what it waits for: what is looked at when a program hangs.
//
// Always on, so it costs little: a ring of fixed size, made once; an event is a few stores under a mutex that is held
// for some ten nanoseconds, and allocates nothing. A reader copies all under the mutex and writes the text without it.
// Any thread may call anything at any time; no other lock is taken inside.
//
// Collectives are known by the id that they are enrolled with; 0 is the communicator itself. A round gets an entry when
// it is first heard of, and loses it to the newest one when the ring is full; what is said of it then is ignored.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/types.h"
#include "diagnostics/trace.h"
#include "transport/transport.h"

namespace pyc {

/// How a round came out.
struct RoundOutcome {
  Rank initiator = kNoRank;
  std::uint32_t contributor_count = 0;
  std::span<const std::uint64_t> contributors;  // bitmap over ranks; empty: not known
};

class FlightRecorder {
 public:
  /// How far a round has come here. It never goes back.
  enum class State : std::uint8_t {
    kCalled,     // this rank has contributed; the round has not started, as far as is known here
    kStarted,    // has started, and waits for data of this node's ranks or is reduced
    kRunning,    // this node's part is on its way to the others
    kCompleted,  // the result is here
    kGiven,      // the application has been given it
  };

  /// `rounds`: entries of the ring; 0: records nothing. Waits go into the trace too, if there is one.
  FlightRecorder(const Transport& transport, std::size_t rounds, Trace* trace);
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  bool on() const { return !entries_.empty(); }

  /// Names the communicator: the same on all its ranks, and no other's.
  void set_group(std::string group);
  void opened(std::uint32_t collective, const std::string& name);
  /// What `note_at` finds a collective by without looking it up: for what is noted in every call. Null if nothing is
  /// recorded.
  struct Track;
  std::shared_ptr<Track> track_of(std::uint32_t collective) const;
  /// This rank has closed it.
  void left(std::uint32_t collective);
  /// Every rank has closed it.
  void ended(std::uint32_t collective);

  void note(std::uint32_t collective, RoundNumber round, State state, const RoundOutcome& outcome = {}) {
    if (on()) note_at(track_of(collective).get(), round, state, transport_.now(), outcome);
  }
  void note_at(Track* track, RoundNumber round, State state, Seconds when, const RoundOutcome& outcome = {});

  /// What the application waits for in its call is known better now.
  void waits_for(std::uint32_t collective, std::string what);

  /// The application waits, for as long as this lives. If it ends by an exception, the wait is kept as given up until
  /// the collective's next call, so that the record of a StallError shows it.
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
    int exceptions_;      // in flight when it began
    std::string traced_;  // what it waits for, if there is a trace
  };

  /// One JSON object. Times are of the transport's clock, in seconds; "clock_s" is when the record was made.
  std::string json() const;

 private:
  static constexpr Seconds kNotYet = -1;
  static constexpr std::size_t kWords = 4;  // of the bitmap: contributors of up to 256 ranks
  static constexpr std::size_t kMostEnded = 64;

  struct Entry {
    std::uint32_t collective = 0;
    State state = State::kCalled;
    bool members_known = false;
    RoundNumber round = 0;
    std::array<Seconds, 5> times{kNotYet, kNotYet, kNotYet, kNotYet, kNotYet};  // by state
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
  mutable std::mutex mutex_;
  std::string group_;
  std::vector<Entry> entries_;
  std::uint64_t recorded_ = 0;                              // rounds; the newest is at (recorded_ - 1) % the capacity
  std::map<std::uint32_t, std::shared_ptr<Track>> tracks_;  // of open collectives, and of the last that ended
  Seconds last_call_ = kNotYet;                             // of the application came or returned
};

/// Guarded by the recorder's mutex.
struct FlightRecorder::Track {
  std::uint32_t collective = 0;
  std::string name;
  RoundNumber begun = 0;  // the newest round that has an entry, + 1
  RoundNumber completed = 0;
  bool left = false;
  bool ended = false;
  std::string awaited;  // what the application waits for; empty: nothing
  RoundNumber awaited_round = kNoRound;
  Seconds since = kNotYet;
  Seconds gave_up = kNotYet;
};

}  // namespace pyc
