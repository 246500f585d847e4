// A parameter server and its workers in virtual time, on the policies themselves. The server is a table and an
// accumulator for each worker, of one float64 as weights; messages take the same time each, by default none.
//
// A gradient is `value + slope * weights`, of the weights that its worker was given, and is added: integers and a slope
// of 0 show whether each is used once.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "services/parameter_server/policies/policy.h"

namespace pyc {

struct ServerScript {
  /// After its push of this number the worker leaves for some time, and comes back for new weights.
  struct Absence {
    server::Worker worker;
    std::uint64_t push;
    Seconds time;
  };

  server::SyncOptions sync;
  std::size_t workers = 1;
  std::size_t max_pushes = 0;  ///< columns of `work`
  std::vector<Seconds> work;   ///< worker x push: what computing takes, >= 0
  std::vector<double> values;  ///< worker x push
  double slope = 0;
  std::vector<std::uint64_t> pushes;    ///< by worker: then it leaves for good. Trials given up count.
  std::vector<std::uint64_t> vanishes;  ///< by worker: the push in whose computing it stops for ever; >= pushes: never
  std::vector<Absence> absences;
  bool gives_up = true;          ///< MindFlayer's workers give up when their time is over; else they push late
  Seconds latency = 0;           ///< of a message
  std::uint64_t max_events = 0;  ///< then it stops, and all are stuck; 0: never
};

struct ServerHistory {
  /// A gradient has come, or a trial was given up.
  struct Push {
    Seconds time;
    server::Worker worker;
    std::uint64_t push;       ///< its number among those of the worker
    server::Version version;  ///< of the weights on which it was computed
    server::Version delay;    ///< updates since
    bool given_up, used;
  };
  struct Term {
    server::Worker worker;
    std::uint64_t push;
    server::Version delay;  ///< in this update
    double weight;
  };
  struct Update {
    Seconds time;
    double weights;  ///< after it
    std::vector<Term> terms;
  };
  struct Release {
    Seconds time;
    server::Worker worker;
    server::Clock clock;
    Seconds waited;
  };
  struct Superstep {
    Seconds end, length;
    Seconds slack;      ///< of the worker that came first, until the end
    Seconds predicted;  ///< when the policy expected the end; kUnknown if it did not
    std::vector<server::Clock> clocks;
  };
  struct PresenceChange {
    Seconds time;
    server::Worker worker;
    server::Presence presence;
  };
  using Entry = std::variant<Push, Update, Release, Superstep, PresenceChange>;

  std::vector<Entry> entries;         ///< as they follow on each other
  std::vector<server::Clock> clocks;  ///< by worker, in the end
  std::vector<Term> gathered;         ///< in accumulators in the end; weights and delays are 0
  std::string stuck;                  ///< empty, or who has neither ended nor vanished
};

ServerHistory simulate_server(const ServerScript& script);

}  // namespace pyc
