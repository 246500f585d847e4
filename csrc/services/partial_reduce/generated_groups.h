// Groups of a generator that runs in one rank's engine, and the protocol between it and the workers (Ripples section
// 4.1): a request, a grant to every member as the group starts, an acknowledgement from each.
//
// Everything is an active message, and messages between two ranks keep their order; so a worker's acknowledgement never
// overtakes the request before it, nor a grant the one before it. The worker in the rank of the generator speaks to it
// in the same way.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <vector>

#include "core/rank_set.h"
#include "engine/collective.h"
#include "engine/engine.h"
#include "groups/generator.h"
#include "services/common/mailbox.h"
#include "services/partial_reduce/group_source.h"

namespace pyc {

class GeneratedGroups final : public GroupSource {
 public:
  /// Every rank: a worker. `engine`'s own rank makes the generator if it is `server`.
  GeneratedGroups(Engine& engine, std::uint32_t collective, const GroupOptions& options, Rank server);

  void request(std::int64_t step, const std::vector<Rank>& group) override;
  const Turn* next() const override;
  void performed() override;
  void leave() override;
  void deliver(Rank from, ConstBytes message) override;
  bool finished() const override { return finished_; }
  std::vector<Rank> not_left() const override { return left_.missing(engine_.size()); }
  void report_failure(const std::string& text) override {
    FailureReports::send(mailbox_, std::views::iota(Rank{0}, engine_.size()), engine_.rank(), text);
  }
  void inquire() override;
  std::optional<std::string> explanation() const override;
  std::string silence() const override;

 private:
  // To the generator.
  struct Request {
    std::int64_t step;
  };
  struct Acknowledgement {
    Sequence sequence;
  };
  struct Leave {};  // to every rank
  struct Inquiry {};

  // From it.
  /// The tail are members; a long group takes several messages, one after the other.
  struct Granted {
    using Tail = Rank;
    Sequence sequence;
    std::int64_t newest_step;
    std::int32_t conflicts;
    std::uint16_t members;  // in all
    std::uint16_t answers;  // the receiver's request; 0: none
  };
  struct Finished {};
  /// The tail is text, in pieces; the last one is not full.
  struct Explanation {
    using Tail = char;
  };

  using Messages = Mailbox<Request, Acknowledgement, Leave, Inquiry, Granted, Finished, Explanation, DeviceFailed>;

  /// The generator's side.
  struct Server {
    explicit Server(const GroupOptions& options) : generator(options) {}
    GroupGenerator generator;
    std::int64_t newest_step = 0;
    std::vector<Grant> started;
    bool has_announced_end = false;
  };

  template <class Action>
  void serve(Action action);
  void grant(const Grant& grant);
  void explain(Rank worker);
  void take_grant(const Granted& granted, std::span<const Rank> members);
  void take_explanation(std::span<const char> piece);

  Engine& engine_;
  const Messages mailbox_;
  const Rank server_rank_;
  std::unique_ptr<Server> server_;  // in one rank
  std::deque<Turn> granted_;        // the last one may be incomplete
  std::size_t missing_ = 0;         // members of it that have not been sent yet
  RankSet left_;
  bool finished_ = false;
  std::string text_;
  bool explained_ = false;
};

}  // namespace pyc
