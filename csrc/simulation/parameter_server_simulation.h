// A parameter server and its workers in virtual time, with the real policies. The server has a table, and an
// accumulator for each worker. The weights are one float64. All messages take the same time, by default none.
//
// A gradient is `value + slope * weights`, with the weights that its worker received, and is added to the weights. With
// integers and a slope of 0, the weights show whether each gradient is used once.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "services/parameter_server/policies/policy.h"

namespace pyc {

struct ServerScript {
  /// After this push the worker leaves for some time, and returns for new weights.
  struct Absence {
    server::Worker worker;
    std::uint64_t push;
    Seconds time;
  };

  server::SyncOptions sync;
  std::size_t workers = 1;
  std::size_t max_pushes = 0;  ///< columns of `work`
  std::vector<Seconds> work;   ///< worker x push: computing time, >= 0
  std::vector<double> values;  ///< worker x push
  double slope = 0;
  std::vector<std::uint64_t> pushes;    ///< by worker: pushes before it leaves permanently. Trials given up count.
  std::vector<std::uint64_t> vanishes;  ///< by worker: the push at which it stops while it computes; >= pushes: never
  std::vector<Absence> absences;
  bool gives_up = true;  ///< MindFlayer: workers give up when their time is over; otherwise they push late
  Seconds latency = 0;
  std::uint64_t max_events = 0;  ///< afterwards the simulation stops, and all are stuck; 0: unlimited
};

struct ServerHistory {
  /// A gradient has arrived, or a trial was given up.
  struct Push {
    Seconds time;
    server::Worker worker;
    std::uint64_t push;       ///< number among the pushes of the worker
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
    Seconds slack;      ///< from the first arrival of a worker to the end
    Seconds predicted;  ///< the end that the policy predicted; kUnknown if it did not
    std::vector<server::Clock> clocks;
  };
  struct PresenceChange {
    Seconds time;
    server::Worker worker;
    server::Presence presence;
  };
  using Entry = std::variant<Push, Update, Release, Superstep, PresenceChange>;

  std::vector<Entry> entries;         ///< in order of occurrence
  std::vector<server::Clock> clocks;  ///< by worker, at the end
  std::vector<Term> gathered;         ///< in the accumulators at the end; weights and delays are 0
  std::string stuck;                  ///< workers that have neither ended nor vanished
};

ServerHistory simulate_server(const ServerScript& script);

}  // namespace pyc
