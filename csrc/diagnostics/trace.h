// A trace of one rank in the Chrome trace format (chrome://tracing, Perfetto): every op of every run, and the work in
// shared memory. The engine has no Trace unless PYC_TRACE is set. Any thread may record at any time.
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
  /// `path`: the rank is inserted before its extension. trace.json becomes trace.rank3.json, and
  /// trace.rank3.communicator1.json for the second communicator of the process. `group`: the unique name of the
  /// communicator, the same on all its ranks.
  Trace(std::string path, Rank rank, Rank size, int communicator, std::string group,
        std::size_t most_events = kMostEvents);

  void begin(Cookie op, Seconds now);
  void end(Cookie op, Seconds now, std::string_view name, std::uint32_t collective, RoundNumber round);

  void add(std::string_view name, Seconds begin, Seconds end, std::uint32_t collective, RoundNumber round);
  /// `what`: the cause of the wait; the first `kLongestText` bytes are kept.
  void add_wait(Seconds begin, Seconds end, std::uint32_t collective, RoundNumber round, std::string_view what);

  /// Writes the file, with the first `most_events` events. The process id is rank + size * communicator, the thread id
  /// is the collective, and times are in microseconds.
  void write() const;

 private:
  static constexpr std::size_t kLongestText = 200;
  static constexpr std::size_t kMostEvents = 1'000'000;  // about 100 MB

  struct Event {
    std::string name;
    Seconds begin;
    Seconds end;
    std::uint32_t collective;
    RoundNumber round;
    std::string awaited;  // the cause of a wait; empty for other events
  };

  void keep(Event event);  // under the mutex

  const std::size_t most_events_;
  std::string path_;
  std::string process_name_;
  int process_;
  int communicator_;
  std::string group_;
  mutable std::mutex mutex_;  // guards the members below
  std::unordered_map<Cookie, Seconds> begun_;
  std::vector<Event> events_;
  std::size_t left_out_ = 0;
};

/// A collective's row in the trace of its rank. Does nothing if there is no trace.
class TraceTrack {
 public:
  TraceTrack() = default;
  TraceTrack(Trace* trace, const Transport& clock, std::uint32_t collective)
      : trace_(trace), clock_(&clock), collective_(collective) {}

  Seconds now() const { return trace_ == nullptr ? 0 : clock_->now(); }
  void add(std::string_view name, Seconds begin, RoundNumber round) const {
    if (trace_ != nullptr) trace_->add(name, begin, clock_->now(), collective_, round);
  }

 private:
  Trace* trace_ = nullptr;
  const Transport* clock_ = nullptr;
  std::uint32_t collective_ = 0;
};

}  // namespace pyc
