// A record of every op of every run, in the Chrome trace format (chrome://tracing, Perfetto). Off unless PYC_TRACE is
// set: the engine then holds no Trace at all.
#pragma once

#include <cstdint>
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
  /// trace.rank3.communicator1.json for the second communicator of the process.
  Trace(std::string path, Rank rank, Rank size, int communicator);

  void begin(Cookie op, Seconds now) { begun_[op] = now; }
  void end(Cookie op, Seconds now, std::string_view name, std::uint32_t collective, RoundNumber round);

  /// Writes the file; process id = rank + size * communicator, thread id = collective, times in microseconds.
  void write() const;

 private:
  struct Event {
    std::string name;
    Seconds begin;
    Seconds end;
    std::uint32_t collective;
    RoundNumber round;
  };

  std::string path_;
  std::string process_name_;
  int process_;
  std::unordered_map<Cookie, Seconds> begun_;
  std::vector<Event> events_;
};

}  // namespace pyc
