// A record of what a rank does, in the Chrome trace format (chrome://tracing, Perfetto): every op of every run, and
// what it does in shared memory. Off unless PYC_TRACE is set: the engine then holds no Trace at all.
//
// Threads may record at the same time: the engine's own, and those of the application.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/types.h"
#include "transport/transport.h"

namespace pyc {

class Trace {
 public:
  /// `path` with the rank put before its ending: trace.json is written as trace.rank3.json, and as
  /// trace.rank3.communicator1.json for the second communicator of the process. `group`: the same on all ranks of the
  /// communicator, and no other's.
  Trace(std::string path, Rank rank, Rank size, int communicator, std::string group,
        std::size_t most_events = kMostEvents);

  void begin(Cookie op, Seconds now);
  void end(Cookie op, Seconds now, std::string_view name, std::uint32_t collective, RoundNumber round);

  void add(std::string_view name, Seconds begin, Seconds end, std::uint32_t collective, RoundNumber round);
  /// A call of the application has waited. `what`: for what; the first `kLongestText` bytes of it are kept.
  void add_wait(Seconds begin, Seconds end, std::uint32_t collective, RoundNumber round, std::string_view what);

  /// Writes the file, with the first `most_events` events; process id = rank + size * communicator, thread id =
  /// collective, times in microseconds.
  void write() const;

 private:
  static constexpr std::size_t kLongestText = 200;
  static constexpr std::size_t kMostEvents = 1'000'000;  // some 100 MB

  struct Event {
    std::string name;
    Seconds begin;
    Seconds end;
    std::uint32_t collective;
    RoundNumber round;
    std::string awaited;  // empty: nothing is said of it
  };

  void keep(Event event);  // under the mutex

  const std::size_t most_events_;
  std::string path_;
  std::string process_name_;
  int process_;
  int communicator_;
  std::string group_;
  mutable std::mutex mutex_;  // guards what follows
  std::unordered_map<Cookie, Seconds> begun_;
  std::vector<Event> events_;
  std::size_t left_out_ = 0;
};

/// A collective's row in its rank's trace. Nothing at all if there is no trace.
class TraceTrack {
 public:
  TraceTrack() = default;
  TraceTrack(Trace* trace, const Transport& clock, std::uint32_t collective)
      : trace_(trace), clock_(&clock), collective_(collective) {}

  /// 0 if there is no trace.
  Seconds now() const { return trace_ == nullptr ? 0 : clock_->now(); }
  /// From `begin` to now.
  void add(std::string_view name, Seconds begin, RoundNumber round) const {
    if (trace_ != nullptr) trace_->add(name, begin, clock_->now(), collective_, round);
  }

 private:
  Trace* trace_ = nullptr;
  const Transport* clock_ = nullptr;
  std::uint32_t collective_ = 0;
};

}  // namespace pyc
