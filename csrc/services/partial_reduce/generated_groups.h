// Groups from a generator in one rank's engine, and its protocol with the workers (Ripples section 4.1): a request, a
// grant to every member when the group starts, an acknowledgment from each. Messages between two ranks keep their
// order: an acknowledgment never overtakes the request before it, and a grant never overtakes an earlier one. The
// generator's own rank uses messages too.
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
  /// Every rank is a worker; rank `server` makes the generator.
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

  // From the generator.
  /// The tail lists members; a long group takes several consecutive messages.
  struct Granted {
    using Tail = Rank;
    Sequence sequence;
    std::int64_t newest_step;
    std::int32_t conflicts;
    std::uint16_t members;  // total number
    std::uint16_t answers;  // 1 if it answers a request of the receiver
  };
  struct Finished {};
  /// The tail is a piece of the text; the last piece is not full.
  struct Explanation {
    using Tail = char;
  };

  using Messages = Mailbox<Request, Acknowledgement, Leave, Inquiry, Granted, Finished, Explanation, DeviceFailed>;

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
  std::unique_ptr<Server> server_;  // only on rank `server`
  std::deque<Turn> granted_;        // the last one may be incomplete
  std::size_t missing_ = 0;         // members of the last one that have not arrived yet
  RankSet left_;
  bool finished_ = false;
  std::string text_;
  bool explained_ = false;
};

}  // namespace pyc
