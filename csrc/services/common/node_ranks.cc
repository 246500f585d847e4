#include "services/common/node_ranks.h"

#include <new>

namespace pyc {

NodeRanks::NodeRanks(std::byte* memory, const Nodes& nodes, Rank own) : memory_(memory), nodes_(nodes), own_(own) {
  ::new (&head(own_)) Head{.process = ProcessId::own(), .events = {}};
  head(own_).events.check();
}

std::vector<Rank> NodeRanks::gone() const {
  std::vector<Rank> ranks;
  for (const Rank r : nodes_.neighbours(own_)) {
    if (r != own_ && state(r) == ProcessState::kGone) ranks.push_back(r);
  }
  return ranks;
}

}  // namespace pyc
