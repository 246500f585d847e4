// Which ranks have died, as far as this one can see: by fault-tolerant MPI (ULFM), where the library and the launcher
// have it, and by the processes of this machine.
//
// A rank that was told of a death may end its program before another is told: a process that is gone need not have
// failed. Where MPI tells who has failed, that is what counts; otherwise the launcher ends the job anyway, or does not
// look.
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

  /// The transport outlives this. `neighbours`: the other ranks whose processes can be seen from here, those of this
  /// machine.
  FailureDetector(const Transport& transport, std::vector<Neighbour> neighbours)
      : transport_(transport), neighbours_(std::move(neighbours)) {}

  /// The ranks that have died, ascending. Asks MPI, which may ask the launcher: for after an error.
  std::vector<Rank> dead() const;
  /// ... if the process of a neighbour is gone: for now and then.
  std::vector<Rank> dead_neighbours() const;
  /// ... if the processes of some ranks are gone. Waits a moment until MPI knows it too.
  std::vector<Rank> dead_if_gone(std::vector<Rank> gone) const;
  /// Whether this rank is the lowest of its machine whose process runs.
  bool is_lowest_here() const;

 private:
  const Transport& transport_;
  const std::vector<Neighbour> neighbours_;
};

}  // namespace pyc
