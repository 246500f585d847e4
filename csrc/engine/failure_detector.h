// Detects dead ranks by the processes of this machine, and by fault-tolerant MPI (ULFM) if it is supported.
//
// A process that is gone need not have failed: a rank that learns of a death may end its program before other ranks
// learn of it. If MPI reports failures, it decides. Otherwise the launcher ends the job anyway, or does not check.
#pragma once

#include <utility>
#include <vector>

#include "core/types.h"
#include "node/process.h"
#include "transport/transport.h"

namespace pyc {

class FailureDetector {
 public:
  struct Neighbour {
    Rank rank;
    ProcessId process;
  };

  /// `neighbours`: the other ranks of this machine, whose processes are visible. The transport outlives this object.
  FailureDetector(const Transport& transport, std::vector<Neighbour> neighbours)
      : transport_(transport), neighbours_(std::move(neighbours)) {}

  /// The dead ranks, ascending. Asks MPI, which may ask the launcher, so use it only after an error.
  std::vector<Rank> dead() const;
  /// The same, if the process of a neighbor is gone. Cheap enough for periodic checks.
  std::vector<Rank> dead_neighbours() const;
  /// The same, if the processes of the given ranks are gone. Waits a moment until MPI knows it too.
  std::vector<Rank> dead_if_gone(std::vector<Rank> gone) const;
  /// Whether this rank is the lowest rank of its machine with a running process.
  bool is_lowest_here() const;

 private:
  const Transport& transport_;
  const std::vector<Neighbour> neighbours_;
};

}  // namespace pyc
