// Groups from a rule on rank and step (Ripples section 4.2), without a generator.
//
// A rank announces itself to the other members, and performs the group when each of them has announced itself or left.
// All members agree on the group, because a rank announces itself to all of them or, after it has left, to none, and
// messages keep their order. Rejected: starting at once, with the engines of ranks that have left as permanent members,
// which would have to know which groups remain and in which order.
#pragma once

#include <cstdint>
#include <optional>
#include <ranges>
#include <string>
#include <vector>

#include "core/rank_set.h"
#include "engine/collective.h"
#include "engine/engine.h"
#include "services/common/mailbox.h"
#include "services/partial_reduce/group_source.h"

namespace pyc {

class RuledGroups final : public GroupSource {
 public:
  RuledGroups(Engine& engine, std::uint32_t collective);

  void request(std::int64_t step, const std::vector<Rank>& group) override;
  const Turn* next() const override { return ready_ ? &turn_ : nullptr; }
  void performed() override;
  void leave() override;
  void deliver(Rank from, ConstBytes message) override;
  bool finished() const override { return left_.count() == engine_.size(); }
  std::vector<Rank> not_left() const override { return left_.missing(engine_.size()); }
  void report_failure(const std::string& text) override {
    FailureReports::send(mailbox_, std::views::iota(Rank{0}, engine_.size()), engine_.rank(), text);
  }
  void inquire() override {}
  std::optional<std::string> explanation() const override;
  std::string silence() const override { return {}; }

 private:
  struct Arrival {
    std::int64_t step;
  };
  struct Leave {};  // to every rank
  using Messages = Mailbox<Arrival, Leave, DeviceFailed>;

  static constexpr std::int64_t kNowhere = -1;

  std::int64_t& step_of(Rank rank) { return steps_[static_cast<std::size_t>(rank)]; }
  void reconsider();

  Engine& engine_;
  const Messages mailbox_;
  std::vector<Rank> group_;          // by the rule; empty if no request is open
  std::int64_t step_ = kNowhere;     // of this rank
  std::vector<std::int64_t> steps_;  // by rank: step of its announcement to this rank, for a group that has not started
  RankSet left_;
  Turn turn_;
  bool ready_ = false;
};

}  // namespace pyc
