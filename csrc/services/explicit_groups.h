// P-Reduces in groups that the application gives: `Communicator.preduce`.
//
// A collective that nobody creates: it has an id of its own (kExplicitGroups), and each rank makes it when it needs it
// first. Messages for a rank that has not come yet wait in the transport, notices in the engine.
//
// A group goes by messages (group_runs.h) or, within a node, in shared memory (node_groups.h), as its members agree.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/nodes.h"
#include "engine/collective.h"
#include "engine/engine.h"
#include "node/standing.h"
#include "services/group_runs.h"
#include "services/node_groups.h"

namespace pyc {

class ExplicitGroups final : public Collective {
 public:
  /// Once per engine. The result keeps the engine alive.
  static std::shared_ptr<ExplicitGroups> join(std::shared_ptr<Engine> engine, Memory& memory, const Nodes& nodes);

  /// Collective among `members` (ascending, this rank among them). `algorithm`: the same on all; "board": in shared
  /// memory, std::runtime_error if it cannot be had. StallError after `timeout` seconds (negative: no limit) names
  /// those who have not come; RankFailedError those of this node who have died. After an error a P-Reduce may still be
  /// under way, see `uses_values`.
  void reduce(const std::vector<Rank>& members, const GroupData& data, const std::string& algorithm, Seconds timeout,
              const Engine::Interrupt& interrupt);

  /// Whether values that were given to `reduce` may still be read and written.
  bool uses_values();
  void close();
  std::uint64_t cache_hits();
  std::uint64_t cache_misses();

  // ---- Collective

  bool advance() override;
  void on_notice(Rank from, ConstBytes notice) override;
  bool busy() const override { return is_running(); }
  Seconds deadline() const override { return kNever; }
  bool finished() const override { return closed_ && !is_running(); }
  const std::string& name() const override { return name_; }
  void abandon() override { closed_ = true; }
  std::vector<Rank> not_closed() const override { return members_; }
  bool has_waiting(Rank rank) const override { return rank == engine_->rank() && is_running(); }

 private:
  struct Notice {
    enum Kind : std::uint32_t { kInquiry, kReport };  // and NodeGroups::kHere, which is none of these
    NoticeHeader header;
    std::uint64_t number;
    Report report;
  };

  ExplicitGroups(Engine& engine, Memory& memory, const Nodes& nodes);

  bool is_running() const { return runs_.is_running() || on_node_.is_running(); }
  void check_alive();

  Report standing_to(std::uint64_t number) const;
  void tell(Rank rank, Notice::Kind kind, std::uint64_t number, Report report = {});
  [[noreturn]] void stall(Seconds waited, const Engine::Interrupt& interrupt);

  Engine* const engine_;  // owns this
  const std::string name_ = "preduce";
  GroupRuns runs_;             // one of both performs
  NodeGroups on_node_;         // ... the newest group
  std::vector<Rank> members_;  // of the newest group
  std::uint64_t number_ = 0;   // ... and its number
  std::vector<Report> reports_;
  Seconds called_;
  std::atomic<bool> done_{true};
  bool failed_ = false;
  std::atomic<bool> closed_{false};
};

}  // namespace pyc
