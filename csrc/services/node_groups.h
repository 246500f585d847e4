// P-Reduces in given groups whose members share a node: what `preduce` does on the board of groups
// (node/group_board.h).
//
// Nobody creates anything for all ranks here: each rank makes memory for its own values when it first needs it. As it
// comes to a group it says to the other members that it is here, where its memory is, and which ticket it has used
// last; when all have said so, the group has the next ticket after all of these. So ranks that are in none of a rank's
// groups need not know of it. Long values go piece by piece, so that memory stays bounded.
//
// *Rejected: memory for all ranks of a node, made with the communicator*: a communicator would be made by one more
// meeting, for a call that few programs make. *Rejected: finding each other in the shared words alone*: a word would
// have to name the group too, and stalls, which notices explain, would need a second way.
//
// Under the engine's progress lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/nodes.h"
#include "engine/collective.h"
#include "engine/engine.h"
#include "memory/group_data.h"
#include "memory/memory.h"
#include "node/group_board.h"
#include "node/shared_memory.h"

namespace pyc {

class NodeGroups {
 public:
  static constexpr std::uint32_t kHere = 2;  // the kind of its notices

  /// Of `engine`'s rank; notices are of `collective`.
  NodeGroups(Engine& engine, Memory& memory, const Nodes& nodes, std::uint32_t collective);

  /// Makes this rank's memory if it has none yet. std::runtime_error says what the system refused.
  void prepare();
  /// `members`: of this rank's node, ascending, this rank among them, at least two. `number`: the same on all members.
  /// `data`: without weight.
  void start(const std::vector<Rank>& members, std::uint64_t number, const GroupData& data);
  /// Does what can be done. Whether what was started has ended: the result is in its place.
  bool finish();
  bool is_running() const { return running_; }

  void on_notice(Rank from, ConstBytes notice);

  /// Ranks of this node, of those met so far, whose process has ended.
  std::vector<Rank> gone() const;

 private:
  /// A rank has come to a group with this rank, and waits for it there.
  struct Here {
    static constexpr std::size_t kLongestHandle = 40;
    NoticeHeader header;
    std::uint64_t number;
    std::uint64_t ticket;  // the last that it has used
    char handle[kLongestHandle];
  };
  static_assert(sizeof(Here) <= kMaxNotice);

  bool meet();
  void start_piece();
  const std::vector<Rank>& neighbours() const { return nodes_.ranks(nodes_.of(engine_.rank())); }
  std::size_t place_of(Rank neighbour) const;

  Engine& engine_;
  Memory& memory_;
  const Nodes nodes_;
  const std::uint32_t collective_;
  std::shared_ptr<SharedMemory> shared_;  // this rank's own, from its first group on
  std::unique_ptr<GroupBoard> board_;
  std::vector<std::optional<Here>> here_;  // by place: not taken in yet

  bool running_ = false;
  bool met_ = false;  // all members are here
  std::vector<Rank> members_;
  std::vector<std::size_t> places_;  // theirs
  std::uint64_t number_ = 0;
  std::uint64_t ticket_ = 0;  // of the piece that is under way
  GroupData data_{};
  std::size_t begun_ = 0;  // elements of this piece and those before
};

}  // namespace pyc
