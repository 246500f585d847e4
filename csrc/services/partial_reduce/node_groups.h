// P-Reduces in explicit groups within a node, on the group board (group_board.h). Under the engine's progress lock.
//
// There is no creation. Each rank allocates its memory when it first needs it. In the handshake (handshake.h) it sends
// the handle of its memory and its last ticket, and the group takes the next ticket after all of these. Other ranks do
// not take part. Rejected: memory made with the communicator (one more handshake, for a call that few programs make); a
// rendezvous by the shared words, which would have to name the group, and could not explain stalls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/nodes.h"
#include "memory/group_data.h"
#include "memory/memory.h"
#include "node/shared_memory.h"
#include "services/partial_reduce/group_board.h"

namespace pyc {

class NodeGroups {
 public:
  NodeGroups(Rank rank, Memory& memory, const Nodes& nodes);

  /// Allocates this rank's memory at the first call. Throws std::runtime_error if the system refuses.
  void prepare();
  const std::string& handle() const { return shared_->handle(); }
  std::uint64_t last_ticket() const { return board_->last_ticket(); }

  /// Maps the memory of another rank of the node. Throws std::runtime_error if the system refuses.
  void attach(Rank neighbour, const std::string& handle);
  /// `members`: at least two, ascending, of this rank and attached ones. `ticket`: the same on all, larger than any
  /// that a member has used. `data`: without weight.
  void start(const std::vector<Rank>& members, std::uint64_t ticket, const GroupData& data);
  bool advance() { return board_->advance(); }
  /// For `sleep_on_board`.
  GroupBoard* board() { return board_.get(); }
  bool ended() const { return board_->ended(); }

  /// Attached ranks of this node whose process has ended.
  std::vector<Rank> gone() const;

 private:
  const Rank rank_;
  Memory& memory_;
  const Nodes nodes_;
  std::shared_ptr<SharedMemory> shared_;  // this rank's own, from its first group on
  std::unique_ptr<GroupBoard> board_;
};

}  // namespace pyc
