// P-Reduces in given groups whose members share a node: what `preduce` does on the board of groups
// (group_board.h).
//
// Nobody creates anything for all ranks here: each rank makes memory for its own values when it first needs it. As it
// comes to a group (handshake.h) it says where its memory is, and which ticket it has used last; when all have said so,
// the group has the next ticket after all of these. So ranks that are in none of a rank's groups need not know of it.
//
// *Rejected: memory for all ranks of a node, made with the communicator*: a communicator would be made by one more
// handshake, for a call that few programs make. *Rejected: finding each other in the shared words alone*: a word would
// have to name the group too, and stalls, which active messages explain, would need a second way.
//
// Under the engine's progress lock.
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
  /// Of rank `rank`.
  NodeGroups(Rank rank, Memory& memory, const Nodes& nodes);

  /// Makes this rank's memory if it has none yet. std::runtime_error says what the system refused.
  void prepare();
  /// Of this rank's memory, and the last ticket that it has used.
  const std::string& handle() const { return shared_->handle(); }
  std::uint64_t last_ticket() const { return board_->last_ticket(); }

  /// Where the memory of another rank of the node is. std::runtime_error says what the system refused.
  void attach(Rank neighbour, const std::string& handle);
  /// `members`: of this rank's node, ascending, at least two, this rank and others whose memory is attached. `ticket`:
  /// the same on all, larger than any that one of them has used. `data`: without weight.
  void start(const std::vector<Rank>& members, std::uint64_t ticket, const GroupData& data);
  /// Does what can be done. Whether that was anything.
  bool advance() { return board_->advance(); }
  /// To sleep on, until what was started can go on.
  GroupBoard* board() { return board_.get(); }
  /// Whether what was started has ended: the result is in its place.
  bool ended() const { return board_->ended(); }

  /// Ranks of this node, of those met so far, whose process has ended.
  std::vector<Rank> gone() const;

 private:
  const Rank rank_;
  Memory& memory_;
  const Nodes nodes_;
  std::shared_ptr<SharedMemory> shared_;  // this rank's own, from its first group on
  std::unique_ptr<GroupBoard> board_;
};

}  // namespace pyc
