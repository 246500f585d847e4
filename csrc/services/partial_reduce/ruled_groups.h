// Groups that a rule on rank and step gives (Ripples section 4.2): there is no generator to ask.
//
// A rank that comes to a group says so to the other members, and performs it when each of them has either come or left.
// So all members agree on who is in it: a rank says to all of them that it is here or, having left, never does; and
// what it says arrives in order. A rank that has left is in no group any more.
//
// Rejected: starting at once, with the engines of those who have left as members for ever. They would have to learn
// which groups there still are, and perform them in an order that suits all; a small message is cheaper.
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
  std::vector<Rank> group_;          // by the rule; empty: this rank has not asked
  std::int64_t step_ = kNowhere;     // of this rank
  std::vector<std::int64_t> steps_;  // by rank: in which it has come to a group with this rank that has not started
  RankSet left_;
  Turn turn_;
  bool ready_ = false;
};

}  // namespace pyc
